"""SOAP-Muon with a floor for each neuron, a pinned radius and cautious decay: the optimizer of the
matrices in record 46 of modded-nanogpt's optimization benchmark (pull request 328, June 2026).

With SOAP's eigenbases Q_L and Q_R of the averages of G Gᵀ and Gᵀ G, the Nesterov momentum D is
divided in these bases by the root of the average V of its own squares,

    P = Q_L (D' / √V) Q_Rᵀ,   D' = Q_Lᵀ D Q_R,

and u = √max(1, out/in) polar(P). Then

1. where u would lengthen W, ⟨u, W⟩ < 0, its component along W is halved;
2. the update of each neuron is lifted to the share τ of the norm of its weights;
3. W - η u is brought to the norm ‖W‖ - η ⟨u, W⟩ / ‖W‖, so that only a component along W changes it;
4. entries with u W > 0 are multiplied by 1 - η λ.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PyTree

from specjax.arguments import REAL, check_count, check_number, checked
from specjax.optim._float32_wrapper import in_float32
from specjax.optim._hyperparameters import Number, takes_schedules
from specjax.optim._lift_to_floor import lift_to_floor
from specjax.optim._muon import muon
from specjax.optim._muon_variants import check_free, with_adamw
from specjax.optim._soap import (
    Rotated,
    averaged,
    begun_with,
    empty,
    is_nothing,
    isotropic,
    renewed,
    rotate,
    rotate_back,
)
from specjax.optim.fused_projections import Splits
from specjax.optim.matrices import DimensionNumbers, Matrices, matrices_of
from specjax.spectral.float_range import averaged_rms, frobenius, inner, ratio
from specjax.spectral.methods import NewtonSchulz
from specjax.spectral.polynomials import Quintic

METHOD = NewtonSchulz(12, Quintic(2.0, -1.5, 0.5), scaling="schatten-4")
"""The twelve steps of the record, which converge to the polar factor."""

SMALLEST = 1e-8
"""The least norm that counts, as in the record, whose projections start at zero."""

SMALLEST_BRAKED = 1e-6
"""The same for the component along W that is halved: weights below it grow freely."""


class SoapMuonState(NamedTuple):
    """The number of updates, the momentum's state, and that of each matrix of the leaves."""

    step: Int[Array, ""]
    momentum: Any
    matrices: list[Rotated]


@takes_schedules
@checked
def soap_muon(
    learning_rate: Number,
    weight_decay: Number = 0.025,
    floor: Number = 0.3825,
    beta2: Number = 0.9,
    *,
    outward: Number = 0.5,
    every: int = 1,
    **options: Any,
) -> optax.GradientTransformationExtraArgs:
    """SOAP-Muon (N. Vyas, https://nikhilvyas.github.io/SOAP_Muon.pdf) with a floor for each neuron
    and cautious decay, and AdamW for all other leaves.

    It is the optimizer of record 46 of modded-nanogpt's optimization benchmark, which takes 2690
    steps to a loss of 3.28 where tuned Muon takes 3250 (KellerJordan/modded-nanogpt,
    `records/track_3_optimization`). The steps of matrices are those of its
    `train_gpt_cwd_SOTA.py`, up to bfloat16: see the module's formulas. The first update has
    no bases yet and is Muon's. Three parts are left out: the gate that blends SOAP with the
    momentum in attention's output projections, whose use the record doubts, and outside the
    optimizer lookahead by an average of updates, and the averaged weights of the evaluation. Where
    an average lacks rank, V is isotropic in its null space, as in `scale_by_soap`.

    The record has η = 0.0375, constant and then falling with the power 1.2, and β from 0.85 to 0.95
    in 300 steps. AdamW has its decays 0.8 and 0.99 and eps = 1e-10 for embedding (rate 0.3) and
    readout (1/320); its Adam of vectors (0.01) has no bias correction.

    Args:
        learning_rate: η, as for `muon`.
        weight_decay: λ of the cautious decay, matrices only.
        floor: τ, positive, as for `lift_to_floor`.
        beta2: The decay of V and of both averages, in [0, 1).
        outward: The share that is kept of a component that lengthens W.
        every: Steps from one renewal of the bases to the next.
        **options: All other arguments of `muon`, except `before`, `after`, `weight_decay_mask` and
            `sizes`. `method` is by default the record's twelve Newton-Schulz steps. Leaves may have
            any shape; updates have the dtypes of the parameters.

    Raises:
        ValueError: as `muon`, for a beta2 outside [0, 1), a floor that is not positive, and for an
            option that is taken.

    Examples:
        >>> import jax.numpy as jnp
        >>> from specjax import optim
        >>> params = {"weight": jnp.eye(4), "bias": jnp.ones(4)}
        >>> optimizer = optim.soap_muon(0.0375)
        >>> updates, state = optimizer.update(params, optimizer.init(params), params)

    """
    check_free("soap_muon", options, "before", "after", "weight_decay_mask", "sizes")
    check_number(weight_decay, "weight_decay", REAL, "soap_muon")
    check_number(beta2, "beta2", "[0, 1)", "soap_muon")
    check_number(outward, "outward", REAL, "soap_muon")
    check_count(every, "every", 1, "soap_muon")

    def before(momentum: optax.GradientTransformation, **axes: Any) -> optax.GradientTransformation:
        return in_float32(_precondition(momentum, beta2, every, **axes))

    def after(
        dimension_numbers: DimensionNumbers, splits: Splits | None
    ) -> optax.GradientTransformation:
        return in_float32(
            optax.chain(
                _map_pairs(lambda u, w: _braked(u, w, outward), dimension_numbers, splits),
                lift_to_floor(floor, dimension_numbers=dimension_numbers),
                _map_pairs(
                    lambda u, w: _pinned(u, w, learning_rate, weight_decay),
                    dimension_numbers,
                    splits,
                ),
            )
        )

    chosen: dict[str, Any] = {"before": before, "after": after}
    if "ns_coeffs" not in options and "ns_steps" not in options:
        chosen["method"] = METHOD
    return muon(learning_rate, **chosen | with_adamw(options, b1=0.8, b2=0.99, eps=1e-10))


def _precondition(
    momentum: optax.GradientTransformation,
    beta2: Number,
    every: int,
    *,
    dimension_numbers: DimensionNumbers,
    splits: Splits | None,
) -> optax.GradientTransformationExtraArgs:
    """From gradients to P, the momentum divided by √V in the eigenbases."""
    accumulate = optax.with_extra_args_support(momentum)

    def matrices_in(tree: PyTree) -> Matrices:
        return matrices_of(tree, dimension_numbers, "soap_muon", splits)

    def init(params: PyTree) -> SoapMuonState:
        matrices = [empty(part) for part in matrices_in(params).parts()]
        return SoapMuonState(jnp.zeros((), jnp.int32), accumulate.init(params), matrices)

    def update(
        updates: PyTree, state: SoapMuonState, params: PyTree | None = None, **extra_args: Any
    ) -> tuple[PyTree, SoapMuonState]:
        steps, accumulated = accumulate.update(updates, state.momentum, params, **extra_args)
        directions, gradients = matrices_in(steps), matrices_in(updates).parts()
        decay = jnp.asarray(beta2, jnp.result_type(float))

        def start() -> tuple[list[Array], list[Rotated]]:
            return directions.parts(), [
                begun_with(old, g, decay) for old, g in zip(state.matrices, gradients, strict=True)
            ]

        def advance() -> tuple[list[Array], list[Rotated]]:
            pairs = [
                _divided(old, d, g, decay)
                for old, d, g in zip(state.matrices, directions.parts(), gradients, strict=True)
            ]
            found, matrices = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
            due = state.step % every == 0
            return found, jax.lax.cond(
                due, lambda: [renewed(matrix) for matrix in matrices], lambda: matrices
            )

        found, matrices = jax.lax.cond(state.step == 0, start, advance)
        new = SoapMuonState(optax.safe_increment(state.step), accumulated, matrices)
        return directions.join(found), new

    return optax.GradientTransformationExtraArgs(init, update)


def _divided(
    old: Rotated, direction: Float[Array, "batch m n"], g: Float[Array, "batch m n"], decay: Array
) -> tuple[Float[Array, "batch m n"], Rotated]:
    """P in the old bases, whose averages then get the gradient."""
    rotated = rotate(old, direction)
    rms = averaged_rms(old.rms, isotropic(old, rotated), decay.astype(g.dtype))
    inside = jnp.where(is_nothing(rms, (1, 2)), 0 * rotated, ratio(rotated, rms))
    new = old._replace(rms=rms, averages=averaged(old.averages, g, decay))
    return rotate_back(old, inside), new


def _map_pairs(
    function: Callable[[Array, Array], Array],
    dimension_numbers: DimensionNumbers,
    splits: Splits | None,
) -> optax.GradientTransformation:
    """A function of the stacks of updates and weights of the same matrices."""

    def update(
        updates: PyTree, state: optax.EmptyState, params: PyTree | None = None
    ) -> tuple[PyTree, optax.EmptyState]:
        matrices = matrices_of(updates, dimension_numbers, "soap_muon", splits)
        weights = matrices_of(params, dimension_numbers, "soap_muon", splits)
        results = map(function, matrices.parts(), weights.parts())
        return matrices.join(results), state

    return optax.GradientTransformation(lambda _: optax.EmptyState(), update)


def _norm(x: Float[Array, "batch m n"], least: float = SMALLEST) -> Float[Array, "batch 1 1"]:
    return jnp.maximum(frobenius(x), least)[:, None, None]


def _along(u: Float[Array, "batch m n"], unit: Float[Array, "batch m n"]) -> Array:
    """The component of u along a unit matrix."""
    return inner(u, unit)[:, None, None]


def _braked(u: Array, w: Array, outward: Number) -> Float[Array, "batch m n"]:
    unit = w / _norm(w, SMALLEST_BRAKED)
    along = _along(u, unit)
    return u - jnp.where(along < 0, 1 - jnp.asarray(outward, u.dtype), 0) * along * unit


def _pinned(
    u: Array, w: Array, learning_rate: Number, weight_decay: Number
) -> Float[Array, "batch m n"]:
    """v for which W - η v is the new W, since the learning rate of `muon` follows."""
    rate, decay = (jnp.asarray(x, u.dtype) for x in (learning_rate, weight_decay))
    radius = jnp.maximum(_norm(w) - rate * _along(u, w / _norm(w)), SMALLEST)
    shrinks = jnp.sign(u) * jnp.sign(w) > 0
    kept = radius / _norm(w - rate * u) * (1 - rate * decay * shrinks.astype(u.dtype))
    is_moving = rate != 0
    return u * kept + w * jnp.where(is_moving, (1 - kept) / jnp.where(is_moving, rate, 1), 0)
