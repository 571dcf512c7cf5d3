"""Complete optimizers of one recipe each, with the routing and options of `muon`: Keller Jordan's
Muon, NorMuon and AdaMuon.
"""

from functools import partial
from typing import Any

import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from specjax.arguments import REAL, check_number, checked
from specjax.optim._adamw_groups import numbers_of_recipe
from specjax.optim._float32_wrapper import in_float32
from specjax.optim._hyperparameters import ByGroup, Number, takes_schedules
from specjax.optim._muon import muon
from specjax.optim._normuon import Per, scale_by_neuron_moment
from specjax.optim._orthogonal import matrix_transform
from specjax.optim._scales import Extent
from specjax.optim.fused_projections import Splits
from specjax.optim.matrices import DimensionNumbers
from specjax.spectral.float_range import frobenius, ratio


def jordan_muon(learning_rate: Number, **options: Any) -> optax.GradientTransformationExtraArgs:
    """`muon` with the conventions of Keller Jordan's code: the momentum has no bias correction, and
    AdamW uses b1 = 0.9, b2 = 0.95, eps = 1e-10 and no Nesterov step.

    Args:
        learning_rate: As for `muon`.
        **options: All other arguments of `muon`, such as `adam_learning_rate={"readout": 0.004}`;
            `fallback` replaces AdamW.

    Raises:
        ValueError: as `muon`.

    Examples:
        >>> import jax.numpy as jnp
        >>> from specjax import optim, spectral
        >>> gradient = jnp.diag(jnp.array([3.0, 4.0]))
        >>> optimizer = optim.jordan_muon(0.1, method=spectral.SVD())
        >>> step, state = optimizer.update(gradient, optimizer.init(gradient), gradient)
        >>> bool(jnp.allclose(step, -0.1 * jnp.eye(2)))
        True

    """
    return muon(learning_rate, **with_adamw(options, b2=0.95, eps=1e-10))


@takes_schedules
@checked
def normuon(
    learning_rate: Number, beta2: Number = 0.95, *, per: Per = "output", **options: Any
) -> optax.GradientTransformationExtraArgs:
    """NorMuon (Li et al. 2025, arXiv 2510.05491): `muon` with `scale_by_neuron_moment` after the
    polar factor, and AdamW for all other leaves.

    The steps are those of the authors' code (`normuon.py`): Nesterov momentum without bias
    correction, five Newton-Schulz steps, v ← β₂ v + (1 - β₂) mean(O ⊙ O) over the inputs of each
    output, O / √v at the Frobenius norm of O, times √max(1, out/in), decoupled weight decay. Two
    things differ: the code adds 1e-10 to √v and to a norm, and iterates in bfloat16. The paper's
    algorithm has no Nesterov step and the norm 0.2 √(in · out): `nesterov=False,
    scale="point_two_sqrt_max", method="svd"`.

    Args:
        learning_rate: As for `muon`; for weights stored as (out, in) also pass
            `muon_weight_dimension_numbers=OUT_IN` or a layout.
        beta2: β₂ in [0, 1), a number, a scalar array or a schedule.
        per: As for `scale_by_neuron_moment`; modded-nanogpt and nanochat take "longer".
        **options: All other arguments of `muon`, with `bias_correction=False` by default; `after`
            is taken. Leaves may have any shape; updates have the dtypes of the parameters.

    Raises:
        ValueError: as `muon` and `scale_by_neuron_moment`, and for `after`.

    Examples:
        >>> import jax.numpy as jnp
        >>> from specjax import optim
        >>> params = {"weight": jnp.eye(4), "bias": jnp.ones(4)}
        >>> optimizer = optim.normuon(0.02, weight_decay=0.01)
        >>> updates, state = optimizer.update(params, optimizer.init(params), params)

    """
    check_free("normuon", options, "after")
    after = partial(scale_by_neuron_moment, beta2, per)
    return muon(learning_rate, after=after, **{"bias_correction": False} | options)


@takes_schedules
@checked
def adamuon(
    learning_rate: Number,
    beta: Number = 0.95,
    *,
    eps: Number = 1e-8,
    consistent_rms: Number = 0.2,
    **options: Any,
) -> optax.GradientTransformationExtraArgs:
    """AdaMuon (Si, Zhang and Shen 2025, arXiv 2507.11005, versions 2 and 3): the entries of the
    polar factor of the momentum's signs over the roots of their second moments, and AdamW for all
    other leaves.

    O = polar(sign(M)), V ← β V + (1 - β) O ⊙ O, Ô = O / (√V + ε), and the step is 0.2 √(in · out) Ô
    / ‖Ô‖. The steps are those of Algorithm 1 with `nesterov=False`, and with the default those of
    the authors' code, up to its bfloat16 and an ε added to ‖Ô‖. A bias correction of V would cancel
    in the norm. A matrix of signs may lack rank: an exact method leaves its null space out. Version
    1 had no sign and a β₂ of its own.

    Args:
        learning_rate: As for `muon`; steps have the root mean square of AdamW's, so its rates fit.
        beta: β of the momentum and of V, in [0, 1), a number, a scalar array or a schedule.
        eps: ε, positive; also AdamW's.
        consistent_rms: The root mean square of the step of each matrix, in place of 0.2.
        **options: All other arguments of `muon`, with `bias_correction=False` by default, except
            `scale`, `adaptive`, `before` and `after`. Leaves may have any shape; updates have the
            dtypes of the parameters.

    Raises:
        ValueError: as `muon`, for an ε that is not positive, and for an option that is taken.

    Examples:
        >>> import jax.numpy as jnp
        >>> from specjax import optim
        >>> gradient = jnp.array([[1.0, 2.0, 3.0], [3.0, 1.0, -2.0]])
        >>> optimizer = optim.adamuon(1.0)
        >>> step, state = optimizer.update(gradient, optimizer.init(gradient), gradient)
        >>> bool(jnp.isclose(jnp.sqrt(jnp.mean(step**2)), 0.2))
        True

    """
    check_free("adamuon", options, "scale", "adaptive", "before", "after")
    check_number(beta, "beta", "[0, 1)", "adamuon")
    check_number(eps, "eps", "(0, inf)", "adamuon")
    check_number(consistent_rms, "consistent_rms", REAL, "adamuon")

    def scale(fan_in: Extent, fan_out: Extent) -> Array:
        return jnp.asarray(consistent_rms) * jnp.sqrt(fan_in * fan_out)

    def after(
        dimension_numbers: DimensionNumbers, splits: Splits | None
    ) -> optax.GradientTransformation:
        aligned = matrix_transform(
            _unit,
            "adamuon",
            scale,
            dimension_numbers=dimension_numbers,
            sizes=options.get("sizes"),
            splits=splits,
        )
        return in_float32(optax.chain(optax.scale_by_rms(beta, eps, eps_in_sqrt=False), aligned))

    chosen: dict[str, Any] = {"bias_correction": False, "scale": "none", "after": after}
    chosen |= {"beta": beta, "before": _signs}
    if options.get("fallback") is None:
        chosen["eps"] = eps
    return muon(learning_rate, **chosen | options)


def _signs(momentum: optax.GradientTransformation, **_: Any) -> optax.GradientTransformation:
    return optax.chain(momentum, optax.scale_by_sign())


def _unit(x: Float[Array, "batch m n"]) -> Float[Array, "batch m n"]:
    return ratio(x, frobenius(x)[:, None, None])


def with_adamw(
    options: dict[str, Any], *, b1: ByGroup = 0.9, b2: ByGroup, eps: float
) -> dict[str, Any]:
    """The options of `muon` after the defaults of a code whose momentum has no bias correction and
    whose AdamW takes no Nesterov step, with these numbers.

    Those of AdamW are left out where a `fallback` stands in for it. A mapping among the options
    replaces the numbers of the groups that it names.
    """
    of_adamw = {"adam_b1": b1, "adam_b2": b2, "eps": eps, "adam_nesterov": False}
    is_adamw = options.get("fallback") is None
    chosen = {"bias_correction": False} | (of_adamw if is_adamw else {}) | options
    if is_adamw:
        for name in ("adam_b1", "adam_b2"):
            chosen[name] = numbers_of_recipe(of_adamw[name], options.get(name))
    return chosen


def check_free(name: str, options: dict[str, Any], *taken: str) -> None:
    """Raises ValueError for an option that the recipe sets itself."""
    if given := [option for option in taken if option in options]:
        raise ValueError(f"{name} sets {given[0]} itself; leave it out, or take optim.muon.")
