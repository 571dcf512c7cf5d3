"""QK-Clip: projections of queries and keys are scaled down where an attention logit was too large
(Kimi Team 2025, Kimi K2, arXiv 2507.20534).

With S_h the largest logit of head h in the last forward pass, before the softmax, and γ_h = min(1,
τ / S_h), the weights after the step are

    W_q ← γ_h^(1/2) W_q,   W_k ← γ_h^(1/2) W_k

and, for multi-head latent attention, W_qr ← γ_h W_qr, and the shared W_kr does not change. MaxText
(`qk_clip_utils.py`, August 2026) has the same formulas, up to 1e-6 that it adds to S_h. Megatron-LM
(`SelfAttention.clip_qk`, August 2026) has those of the first line, with one factor for all queries
that share a key.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, ArrayLike, Float, PyTree

from specjax.arguments import check_number, checked
from specjax.optim._float32_wrapper import in_float32
from specjax.optim._hyperparameters import Number, takes_schedules
from specjax.optim.leaf_names import leaf_names
from specjax.optim.matrices import prefix_leaves


class Heads(NamedTuple):
    """How QK-Clip scales a leaf: `axes` are the axes of the leaf that its largest logits share,
    such as (layer, head), and the weights are multiplied by γ to this `power`.

    The power may be an array that broadcasts to the leaf, for parts that share one: 0.5 and 1 for
    the two parts of a query of latent attention, 0.5 and 0 for keys beside values.
    """

    axes: tuple[int, ...]
    power: ArrayLike = 0.5


@takes_schedules
@checked
def qk_clip(threshold: Number, heads: PyTree) -> optax.GradientTransformationExtraArgs:
    """Replaces updates u by γ^power (W + u) - W where a leaf has `Heads`; others pass. Put it last
    in a chain, after the learning rate.

    γ = min(1, τ / S) for the largest logit S of a head. `update(updates, state, params,
    max_logits=tree)` takes the largest logits of the forward pass whose gradient this is: a prefix
    tree with an array for each leaf with `Heads`, of the lengths of its axes (None elsewhere).
    Where heads share keys, give the keys the maximum over their queries' heads: the product of both
    factors then is γ_h at most.

    Args:
        threshold: τ, positive, or a schedule; the paper's is 100.
        heads: A prefix tree of `Heads`, None for leaves that pass; or a function of the parameters
            giving that tree. For weights (layer, model, head, width): `Heads((0, 2))`.

    Returns:
        A transformation without state. Leaves may have any number of axes; half precision is
        computed in float32. A head whose largest logit is at most τ, negative ones included, is
        left as it is; one that is NaN or +∞ makes its weights NaN. `update` needs `params`.

    Raises:
        ValueError: at once for a threshold that is not positive; at update without parameters or
            logits, for logits of another shape, and for axes or a power that do not fit a leaf.

    """
    check_number(threshold, "threshold", "(0, inf]", "qk_clip")

    def update(
        updates: PyTree, state: optax.EmptyState, params: PyTree | None = None, **extra_args: object
    ) -> tuple[PyTree, optax.EmptyState]:
        if params is None or "max_logits" not in extra_args:
            raise ValueError(
                "qk_clip needs parameters and the largest logits: update(updates, state, params,"
                " max_logits=tree)."
            )
        leaves, treedef = jax.tree.flatten(updates)
        specs = prefix_leaves(heads, updates, Heads, "heads")
        logits = prefix_leaves(extra_args["max_logits"], updates, Array, "max_logits")
        clipped = [
            u if spec is None else _factor(name, w, spec, largest, threshold) * (w + u) - w
            for name, u, w, spec, largest in zip(
                leaf_names(updates), leaves, jax.tree.leaves(params), specs, logits, strict=True
            )
        ]
        return jax.tree.unflatten(treedef, clipped), state

    return in_float32(optax.GradientTransformationExtraArgs(lambda _: optax.EmptyState(), update))


def _factor(
    name: str, leaf: Array, spec: Heads, largest: ArrayLike | None, threshold: ArrayLike
) -> Float[Array, "..."]:
    """γ^power on the axes of the leaf."""
    if not isinstance(spec, Heads):
        raise ValueError(
            f"heads of qk_clip are Heads((axis, ...)) or None, got {spec!r} for the leaf {name}."
        )
    axes = tuple(axis % leaf.ndim for axis in spec.axes if -leaf.ndim <= axis < leaf.ndim)
    if len(set(axes)) < len(spec.axes):
        raise ValueError(
            f"The Heads of the leaf {name} need different axes below {leaf.ndim} (its shape is"
            f" {leaf.shape}), got {spec.axes}."
        )
    wanted = tuple(leaf.shape[axis] for axis in axes)
    if largest is None or jnp.shape(largest) != wanted:
        got = "None" if largest is None else f"shape {jnp.shape(largest)}"
        raise ValueError(
            f"The largest logits of the leaf {name} need the shape {wanted} of its axes"
            f" {spec.axes}, got {got}."
        )
    gamma = _gamma(jnp.asarray(largest, leaf.dtype), jnp.asarray(threshold, leaf.dtype))
    in_order = jnp.transpose(gamma, sorted(range(len(axes)), key=axes.__getitem__))
    others = [axis for axis in range(leaf.ndim) if axis not in axes]
    return jnp.expand_dims(in_order, others) ** _power(name, leaf, spec)


def _power(name: str, leaf: Array, spec: Heads) -> Array:
    """The power with as many axes as the leaf, or none."""
    power = jnp.asarray(spec.power, leaf.dtype)
    sides = zip(power.shape[::-1], leaf.shape[::-1], strict=False)
    if power.ndim > leaf.ndim or any(own not in (1, side) for own, side in sides):
        raise ValueError(
            f"The power of the Heads of the leaf {name} must broadcast to its shape {leaf.shape},"
            f" got shape {power.shape}."
        )
    return power.reshape((1,) * (leaf.ndim - power.ndim) + power.shape) if power.ndim else power


def _gamma(largest: Array, threshold: Array) -> Array:
    """min(1, τ / S) for positive S, 1 for negative ones, NaN for NaN and +∞."""
    exceeding = largest > threshold
    gamma = jnp.where(exceeding, threshold / jnp.where(exceeding, largest, 1), 1)
    return jnp.where(jnp.isnan(largest) | jnp.isposinf(largest), jnp.nan, gamma)
