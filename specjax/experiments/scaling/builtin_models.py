"""specjax's models with common optimizers in both parametrizations, for `specjax scaling`."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, ArrayLike, Key, PyTree

from specjax import models, optim
from specjax.models.transformer import Architecture, Sequences
from specjax.scaling.sweep_setup import Problem

INPUTS, SAMPLES = 8, 64
VOCABULARY, CONTEXT, SEQUENCES = 32, 32, 16
HEAD = 16
"""Size of an attention head: wider transformers have more heads, so logits need no other scale."""
PARAMETRIZATIONS = ("standard", "mup")

Powers = tuple[float, float, float]
"""Powers of the width for input layers and embeddings, matrices in between, and outputs."""
KINDS = ("input", "hidden", "output")


class Model(NamedTuple):
    """A model of one width: weights, loss, batches, the kind of each leaf, and possible widths."""

    build: Callable[[Key[Array, ""], int], PyTree]
    loss: Callable[[Any, Any], Array]
    draw: Callable[[Key[Array, ""]], PyTree]
    kinds: Callable[[PyTree], PyTree]
    multiple: int


class Optimizer(NamedTuple):
    """An optimizer's transformations of hidden and other leaves by rate, μP's powers, and rates."""

    hidden: Callable[..., optax.GradientTransformation]
    other: Callable[[ArrayLike], optax.GradientTransformation]
    powers: Powers
    middle: float


def _perceptron_kinds(params: PyTree) -> PyTree:
    return (KINDS[0], *(KINDS[1] for _ in params[1:-1]), KINDS[2])


def _perceptron_draw(key: Key[Array, ""]) -> tuple[Array, Array]:
    x = jax.random.normal(key, (SAMPLES, INPUTS))
    return x, jnp.sin(x[:, :1] + x[:, 1:2] * x[:, 2:3])


def _transformer(key: Key[Array, ""], width: int) -> models.transformer.Transformer:
    return models.transformer.init(
        key, Architecture(VOCABULARY, width, CONTEXT, heads=width // HEAD)
    )


def _transformer_kinds(model: PyTree) -> PyTree:
    kinds = eqx.tree_at(lambda m: m.blocks, model, jax.tree.map(lambda _: KINDS[1], model.blocks))
    return eqx.tree_at(
        lambda m: (m.embedding, m.positions, m.head), kinds, (KINDS[0], KINDS[0], KINDS[2])
    )


def _transformer_draw(key: Key[Array, ""]) -> Sequences:
    """Sequences of a Markov chain that is the same for all seeds."""
    logits = 2 * jax.random.normal(jax.random.key(0), (VOCABULARY, VOCABULARY))

    def following(token: Array, key: Array) -> tuple[Array, Array]:
        after = jax.random.categorical(key, logits[token])
        return after, after

    def sequence(key: Array) -> Array:
        first, *_ = jax.random.randint(key, (1,), 0, VOCABULARY)
        _, rest = jax.lax.scan(
            following, first, jax.random.split(jax.random.fold_in(key, 1), CONTEXT)
        )
        return jnp.concatenate([first[None], rest])

    return Sequences(jax.vmap(sequence)(jax.random.split(key, SEQUENCES)))


def _muon(rate: ArrayLike, scale: str) -> optax.GradientTransformation:
    def labels(params: PyTree) -> PyTree:
        return jax.tree.map(lambda _: "matrix", params)

    return optim.jordan_muon(
        rate, scale=scale, muon_weight_dimension_numbers=optim.OUT_IN, labels=labels
    )


MODELS: Mapping[str, Model] = {
    "mlp": Model(
        lambda key, width: models.mlp.init(key, (INPUTS, width, width, 1)),
        models.mlp.loss,
        _perceptron_draw,
        _perceptron_kinds,
        1,
    ),
    "transformer": Model(
        _transformer, models.transformer.loss, _transformer_draw, _transformer_kinds, HEAD
    ),
}
# The powers are those of table 3 of Yang et al. 2022; Muon's scale takes the place of that of the
# hidden matrices.
OPTIMIZERS: Mapping[str, Optimizer] = {
    "muon": Optimizer(_muon, optax.adamw, (0.0, 0.0, -1.0), 0.02),
    "adamw": Optimizer(optax.adamw, optax.adamw, (0.0, -1.0, -1.0), 0.01),
    "sgd": Optimizer(optax.sgd, optax.sgd, (1.0, 0.0, -1.0), 0.1),
}


def problem(
    model: str, optimizer: str, parametrization: str, base: int, **settings: Any
) -> Problem:
    """A model to be trained by an optimizer; parametrizations are equal at the width `base`."""
    built, steps = MODELS[model], OPTIMIZERS[optimizer]
    mup = parametrization == "mup"

    def build(key: Key[Array, ""], width: int) -> PyTree:
        start, params = (base / width) ** 0.5 if mup else 1.0, built.build(key, width)
        return jax.tree.map(
            lambda w, kind: w * start if kind == "output" else w, params, built.kinds(params)
        )

    def made(rate: ArrayLike, width: int) -> optax.GradientTransformation:
        rates = [rate * (width / base) ** (power if mup else 0.0) for power in steps.powers]
        parts = {
            kind: steps.hidden(each, **settings) if kind == "hidden" else steps.other(each)
            for kind, each in zip(KINDS, rates, strict=True)
        }
        return optax.partition(parts, built.kinds)

    return Problem(build, built.loss, made, built.draw)
