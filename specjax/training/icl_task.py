"""Transformers that learn to recall in context, by several optimizers on the same batches
(associative-memory, Appendix D.2).

Batches are sampled inside the training loop. The task is `specjax.models.recall`;
`paper_optimizers` are the three that the paper compares.
"""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key, PyTree

from specjax import optim, spectral
from specjax.models import recall, transformer
from specjax.models.recall import Recall
from specjax.models.transformer import Architecture, Sequences, Transformer
from specjax.optim.matrices import Fans
from specjax.sizes import AnySize, padded, stream, times
from specjax.training._train_many import train_many

OPTIMIZERS = ("muon", "adamw", "sgd")
MOMENTUM, ADAM_DECAYS, WEIGHT_DECAY = 0.9, (0.9, 0.99), 0.01
NEWTON_SCHULZ_STEPS = 5
RECORDED = ("inside", "outside", "recalled", "shuffled", "diverged")
"""Accuracies on new sequences of the training distribution, and of uniform triggers and outputs;
R(W_V) of the second block, and with the items to be recalled shifted by one; whether the run
stopped because its loss was not finite.
"""


def train_to_recall(
    key: Key[Array, ""],
    task: Recall,
    architecture: Architecture,
    optimizers: Sequence[optax.GradientTransformation],
    batch: AnySize,
    exponents: tuple[Float[Array, ""], Float[Array, ""]],
    iterations: tuple[int, ...],
    evaluation: int,
) -> dict[str, Array]:
    """The quantities `RECORDED` of each optimizer, at the start and after `iterations`, from one
    initialization on the same batches.

    Args:
        key: Root of weights, batches and evaluation; the batch of step t does not depend on the
            number of steps.
        task: Sequences whose items are to be recalled.
        architecture: The transformer's, with a head.
        optimizers: Optimizers of the whole model, as `paper_optimizers` makes them.
        batch: Sequences of a step.
        exponents: α_t of the triggers and α_o of the outputs in training; power laws, 0 where they
            are uniform.
        iterations: Steps after which to evaluate, ascending.
        evaluation: Sequences of each evaluation, of the distribution of training and of the uniform
            one.

    Returns:
        Arrays (1 + len(iterations), len(optimizers)) by the names in `RECORDED`.
    """
    width = architecture.width
    held_out = jax.vmap(
        lambda one, trigger, output: recall.sample(one, task, evaluation, trigger, output)
    )(
        jnp.stack([stream(key, "inside"), stream(key, "outside")]),
        *(jnp.stack([exponent, jnp.zeros_like(exponent)]) for exponent in exponents),
    )
    batches = stream(key, "batches")

    def loss(model: Transformer, sequences: Sequences) -> Array:
        return transformer.loss(model, sequences, width)

    def batch_of(t: Int[Array, ""]) -> Sequences:
        return recall.sample(jax.random.fold_in(batches, t), task, batch, *exponents)

    def record(models: PyTree) -> dict[str, Array]:
        def accuracies(sequences: Sequences) -> Array:
            return jax.vmap(lambda model: transformer.accuracy(model, sequences, width))(models)

        # Not vmapped: batched products of more than eight axes fail on a CPU (jaxlib 0.10).
        inside, outside = jax.lax.map(accuracies, held_out)
        recalled = jax.vmap(lambda model: recall.memory_recall(model, task))(models)
        shuffled = jax.vmap(lambda model: recall.memory_recall(moved_on(model, task), task))(models)
        return {"inside": inside, "outside": outside, "recalled": recalled, "shuffled": shuffled}

    params = transformer.init(stream(key, "weights"), architecture)
    found, stopped = train_many(loss, params, batch_of, optimizers, (0, *iterations), record)
    return found | {"diverged": stopped}


def paper_optimizers(
    rates: Float[Array, " 3"], width: AnySize
) -> list[optax.GradientTransformation]:
    """Muon, AdamW and SGD, the order of `OPTIMIZERS`, at these rates, for a transformer whose width
    may be padded.

    What the paper leaves unsaid: W_O is folded into W_V, as in Bietti et al. (2023) and in R(W_V);
    Muon's steps have the root mean square of AdamW's, 0.2 √max(out, in), so that its learning rate
    serves the AdamW of embedding, positions and head too; weight decay is decoupled for Muon and
    AdamW, and part of the gradient for SGD, as in torch.
    """
    return [_muon(rates[0], width), _adamw(rates[1]), _sgd(rates[2])]


def moved_on(model: Transformer, task: Recall) -> Transformer:
    """The model that predicts the next item of V in place of each item it would predict."""
    assert model.head is not None  # of an architecture that has one
    head = jnp.concatenate(
        [model.head[: padded(task.items)], jnp.roll(model.head[padded(task.items) :], 1, axis=0)]
    )
    return eqx.tree_at(lambda one: one.head, model, head)


def _muon(rate: Float[Array, ""], width: AnySize) -> optax.GradientTransformation:
    return optim.jordan_muon(
        rate,
        beta=MOMENTUM,
        method=spectral.NewtonSchulz(NEWTON_SCHULZ_STEPS),
        scale="point_two_sqrt_max",
        weight_decay=WEIGHT_DECAY,
        muon_weight_dimension_numbers=optim.OUT_IN,
        sizes=lambda updates: _fans(updates, width),
        labels=transformer.labels,
        fallback=_adamw(rate),
    )


def _adamw(rate: Float[Array, ""]) -> optax.GradientTransformation:
    return optax.adamw(rate, *ADAM_DECAYS, weight_decay=WEIGHT_DECAY)


def _sgd(rate: Float[Array, ""]) -> optax.GradientTransformation:
    return optax.chain(optax.add_decayed_weights(WEIGHT_DECAY), optax.sgd(rate, momentum=MOMENTUM))


def _fans(model: PyTree, width: AnySize) -> PyTree:
    """The active fan-ins and fan-outs of each matrix."""
    hidden = times(width, Architecture.expansion)
    of = {"up": Fans(width, hidden), "down": Fans(hidden, width)}
    return jax.tree_util.tree_map_with_path(
        lambda path, _: of.get(getattr(path[-1], "name", ""), Fans(width, width)), model
    )
