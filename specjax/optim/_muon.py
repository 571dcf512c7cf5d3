"""Muon: momentum, orthogonalization, a scale by shape, decoupled weight decay (Jordan et al. 2024),
and AdamW for every leaf that is not a matrix.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.typing import DTypeLike
from jaxtyping import Array, ArrayLike, Int, Key, PyTree
from optax.contrib import MuonDimensionNumbers

from specjax.arguments import REAL, check_number, checked_but
from specjax.optim._adamw_groups import GROUPS, MATRIX, adamw_by_group, check_used
from specjax.optim._float32_wrapper import check_alike, check_arrays, in_float32, with_params
from specjax.optim._hyperparameters import ByGroup, Number, takes_schedules
from specjax.optim._leaf_labels import labels_of, warn_of_stacks
from specjax.optim._log_updates import log_updates
from specjax.optim._momentum import Convention, in_int8, momentum
from specjax.optim._newton_schulz_arguments import (
    STANDARD,
    Coefficients,
    Preconditioning,
    newton_schulz_method,
)
from specjax.optim._orthogonal import Method, orthogonalize
from specjax.optim._rate_multipliers import multiplied, multipliers_of
from specjax.optim._routing import Routed, routes
from specjax.optim._scales import Scale, rms_sqrt_max, scale_named
from specjax.optim.fused_projections import Splits
from specjax.optim.matrices import IN_OUT, DimensionNumbers, Layout, by_name

Step = Callable[..., optax.GradientTransformation]
"""Makes a transformation of matrices, with keywords that say where they are."""


@takes_schedules
@checked_but("ns_coeffs", "ns_steps", "preconditioning", "method")
def muon(
    learning_rate: Number,
    ns_coeffs: Coefficients | Sequence[Coefficients] | str = STANDARD,
    ns_steps: int | Int[Array, ""] = 5,
    beta: Number = 0.95,
    eps: Number = 1e-8,
    weight_decay: Number = 0.0,
    weight_decay_mask: PyTree | Callable[[PyTree], PyTree] | None = None,
    mu_dtype: DTypeLike | None = None,
    *,
    nesterov: bool = True,
    adaptive: bool = False,
    preconditioning: Preconditioning = "frobenius",
    adam_b1: ByGroup = 0.9,
    adam_b2: ByGroup = 0.999,
    adam_eps_root: Number = 0.0,
    adam_weight_decay: ByGroup = 0.0,
    adam_learning_rate: ByGroup | None = None,
    muon_weight_dimension_numbers: DimensionNumbers | None = IN_OUT,
    consistent_rms: Number | None = None,
    convention: Convention = "ema",
    bias_correction: bool = True,
    key: Key[Array, ""] | None = None,
    method: Method | None = None,
    scale: str | Scale = "sqrt_max_1_out_over_in",
    sizes: PyTree | None = None,
    splits: Splits | None = None,
    labels: PyTree | Callable[[PyTree], PyTree] | None = None,
    layout: Layout | None = None,
    fallback: optax.GradientTransformation | None = None,
    sharding: PyTree | None = None,
    before: Step | None = None,
    around: Step | None = None,
    after: Step | None = None,
    adam_nesterov: bool | None = None,
    multipliers: Mapping[str, ArrayLike] | None = None,
    log_every: int | None = None,
) -> optax.GradientTransformationExtraArgs:
    """W ← W - learning_rate (scale · polar(momentum) + weight_decay · W) for matrices, AdamW for
    all other leaves.

    The arguments up to `consistent_rms` are those of `optax.contrib.muon`, with its meanings and
    defaults, and so are the steps. `jordan_muon` has the conventions of Keller Jordan's code.

        optimizer = optim.muon(0.02, weight_decay=0.01)
        state = optimizer.init(params)
        updates, state = optimizer.update(gradients, state, params)

    `layout` or `labels` say which leaves are matrices. Without them a tree (or function) of
    dimension numbers does, in which None marks a leaf that is not a matrix. One specification for
    all leaves takes those of a floating dtype with as many axes as it needs: two by default, three
    for `MuonDimensionNumbers(1, 2)`. This last rule is wrong for stacked layers, so `init` warns of
    leaves with more axes: `layout=specjax.diagnostics.matrix_layout(loss, params, batch)` reads the
    matrices off the loss. `specjax.optim.routing` shows where every leaf goes.

    Numbers (learning rates, decays, `eps`, `consistent_rms`) may be schedules: functions of the
    number of updates before, as in optax. They may also be traced arrays, so a sweep over them is
    one compiled program: build the optimizer inside the vmapped function, or use
    `specjax.optim.inject_hyperparams` (optax's own takes `labels` and other functions for schedules
    unless `static_args` names them). Updates and momenta keep the dtypes of the parameters. In
    float16 momentum and polar factor are computed in float32, and AdamW's state is at least
    float32.

    Args:
        learning_rate: η, in front of the whole step of a matrix.
        ns_coeffs: (a, b, c) of a step X ← a X + b (X Xᵀ) X + c (X Xᵀ)² X, one such triple for each
            step, "standard" or "dion".
        ns_steps: Steps of the Newton–Schulz iteration; with one triple for each step, an upper
            bound on their number.
        beta: Decay of the momentum, in [0, 1).
        eps: Added to AdamW's denominator. The polar factor needs none: it does not depend on the
            scale of its argument.
        weight_decay: Multiplied by the learning rate; matrices only.
        weight_decay_mask: As in `optax.add_decayed_weights`.
        mu_dtype: Dtype of the momentum, and of AdamW's; by default the parameters'. bfloat16 needs
            `key`. int8 is the momentum's alone.
        nesterov: Whether momentum, and AdamW's, look ahead.
        adaptive: As for `orthogonalize`.
        preconditioning: How a matrix is scaled before the first step: by its Frobenius, spectral or
            Schatten-4 norm, or row by row ("aol"). See `specjax.spectral.NewtonSchulz`.
        adam_b1: AdamW's decay of the momentum, or a mapping as for `adam_learning_rate`.
        adam_b2: AdamW's decay of the second moment, or a mapping.
        adam_eps_root: AdamW's `eps_root`.
        adam_weight_decay: AdamW's weight decay, or a mapping.
        adam_learning_rate: AdamW's learning rate, by default `learning_rate`; or a mapping from
            "embedding", "readout" and "other" (vectors and the rest) to numbers or schedules. A
            group that it leaves out has the default.
        muon_weight_dimension_numbers: As `dimension_numbers` for `orthogonalize`; `OUT_IN` for
            weights stored as (out, in).
        consistent_rms: c for the scale c √max(out, in), in place of `scale`.
        convention: The convention of the momentum; see `specjax.optim.momentum`.
        bias_correction: Whether the momentum is corrected for its start at zero.
        key: The random key for a momentum in bfloat16 or int8, which is rounded at random; see
            `specjax.optim.momentum`.
        method: Another method for the polar factor, such as `specjax.spectral.SVD()` or
            "polar_express", in place of `ns_coeffs`, `ns_steps` and `preconditioning`.
        scale: A name of `specjax.optim.SCALES`, or a function of (fan_in, fan_out).
        sizes: As for `orthogonalize`.
        splits: As for `orthogonalize`.
        labels: A prefix tree of "matrix", "embedding", "readout" and "other", or a function of the
            parameters giving it; all but "matrix" go to AdamW. "matrix" on a leaf of more than two
            axes makes the leading ones batch axes.
        layout: A `specjax.diagnostics.MatrixLayout`, in place of `labels`, `splits` and
            `muon_weight_dimension_numbers`. Leaves are found by name.
        fallback: The optimizer of the leaves that are not matrices, in place of AdamW.
        sharding: As for `orthogonalize`: the shardings of the parameters, or one of all stacks of
            matrices.
        before: A function of the transformation `momentum` and the keywords `dimension_numbers` and
            `splits` that gives the transformation of gradients whose updates are orthogonalized,
            such as `lambda momentum, **_: optax.chain(momentum, optax.scale_by_sign())`.
        around: A function of the transformation `orthogonalize` and these keywords that gives the
            one in its place, such as an `alternate`; not with `log_every`.
        after: A function of these keywords that gives a transformation of the scaled polar factors,
            such as `scale_by_neuron_moment`; its result decays and meets the learning rate.
        adam_nesterov: Whether AdamW's momentum looks ahead, by default as `nesterov`.
        multipliers: Factors on the learning rates of leaves, by a leaf's name or its end, as in
            `{"mlp.down": 2.0}`; they multiply the whole step, decay included.
        log_every: The stride at which the state keeps the numbers of `specjax.optim.log_updates`,
            which `specjax.optim.logged` reads; not with `adaptive`.

    Returns:
        A complete optimizer; its state is that of `optax.partition` with "muon" and "adam" (with a
        mapping of rates "muon" and the groups), with schedules the `inner_state` beside their
        count. `update` needs `params`.

    Raises:
        ValueError: at once for a number that is not finite, a wrong beta, convention or scale,
            coefficients that are not triples, an unknown group, or two arguments that exclude each
            other; at init and update for an unknown label, a multiplier that no leaf has, a number
            of an embedding or readout that the model lacks (at once with a layout), an integer leaf
            (filter it out: `eqx.filter(params, eqx.is_inexact_array)`), or a leaf labelled "matrix"
            that is not one.

    Examples:
        >>> import jax.numpy as jnp
        >>> from specjax import optim
        >>> params = {"weight": jnp.ones((4, 4)), "bias": jnp.ones(4)}
        >>> optimizer = optim.muon(0.02, weight_decay=0.01)
        >>> updates, state = optimizer.update(params, optimizer.init(params), params)
        >>> {name: update.shape for name, update in updates.items()}
        {'bias': (4,), 'weight': (4, 4)}

    """
    check_number(learning_rate, "learning_rate", REAL, "muon")
    check_number(weight_decay, "weight_decay", REAL, "muon")
    iteration = {"ns_coeffs": ns_coeffs, "ns_steps": ns_steps, "preconditioning": preconditioning}
    if method is None:
        method = newton_schulz_method(**iteration)
    else:
        _check_default("method", **iteration)
    if consistent_rms is not None:
        _check_default("consistent_rms", scale=scale)
        check_number(consistent_rms, "consistent_rms", REAL, "muon")
        scale = partial(rms_sqrt_max, jnp.asarray(consistent_rms))
    by_group = {
        "adam_learning_rate": learning_rate if adam_learning_rate is None else adam_learning_rate,
        "adam_b1": adam_b1,
        "adam_b2": adam_b2,
        "adam_weight_decay": adam_weight_decay,
    }
    if fallback is None:
        others = adamw_by_group(
            by_group,
            defaults=_defaults(*by_group) | {"adam_learning_rate": learning_rate},
            eps=eps,
            eps_root=adam_eps_root,
            mu_dtype=None if in_int8(mu_dtype) else mu_dtype,
            nesterov=nesterov if adam_nesterov is None else adam_nesterov,
        )
    else:
        _check_default(
            "fallback",
            eps=eps,
            adam_b1=adam_b1,
            adam_b2=adam_b2,
            adam_eps_root=adam_eps_root,
            adam_weight_decay=adam_weight_decay,
            adam_learning_rate=adam_learning_rate,
            adam_nesterov=adam_nesterov,
        )
        others = {"adam": fallback}
    numbers = muon_weight_dimension_numbers
    if layout is not None:
        _check_default(
            "layout", labels=labels, splits=splits, muon_weight_dimension_numbers=numbers
        )
        splits = layout.splits
        check_used(by_group, {row.group for row in layout.rows})
        labels, numbers = by_name(layout, "group"), by_name(layout, "dimension_numbers")
    dimension_numbers = IN_OUT if numbers is None else numbers
    axes = {"dimension_numbers": dimension_numbers, "splits": splits}
    accumulate: Any = momentum(
        beta,
        convention,
        nesterov=nesterov,
        bias_correction=bias_correction,
        mu_dtype=mu_dtype,
        key=key,
    )
    orthogonal: Any = orthogonalize(
        method, scale, adaptive=adaptive, sizes=sizes, sharding=sharding, **axes
    )
    if log_every is not None:
        _check_default("log_every", adaptive=adaptive)
        _check_default("log_every", around=around)
        orthogonal = log_updates(orthogonal, log_every, scale, sizes=sizes, **axes)
    matrix_steps = optax.chain(
        before(accumulate, **axes) if before else accumulate,
        around(orthogonal, **axes) if around else orthogonal,
        *([after(**axes)] if after else []),
        in_float32(
            optax.chain(
                optax.add_decayed_weights(weight_decay, weight_decay_mask),
                optax.scale_by_learning_rate(learning_rate),
            )
        ),
    )

    def label(params: PyTree) -> PyTree:
        found = labels_of(params, labels, dimension_numbers)
        if layout is None:
            check_used(by_group, jax.tree.leaves(found))
        return found

    # In float16 a small gradient would be zero before its polar factor is taken.
    transforms = {"muon": in_float32(matrix_steps, only=jnp.float16), **others}
    optimizers = {MATRIX: "muon"} | {x: x if x in others else "adam" for x in GROUPS}
    steps = optax.partition(transforms, lambda params: jax.tree.map(optimizers.get, label(params)))

    def init(params: PyTree) -> optax.PartitionState:
        multipliers_of(params, multipliers)
        state = steps.init(params)
        if labels is None and isinstance(dimension_numbers, MuonDimensionNumbers):
            warn_of_stacks(params, dimension_numbers)
        return state

    def update(
        updates: PyTree,
        state: optax.PartitionState,
        params: PyTree | None = None,
        **extra_args: Any,
    ) -> tuple[PyTree, optax.PartitionState]:
        check_arrays(updates)
        if params is None:
            raise ValueError("muon needs the parameters: update(updates, state, params).")
        check_alike(updates, params)
        wide, like = with_params(updates, params)
        updates, state = steps.update(wide, state, params, **extra_args)
        updates = multiplied(updates, multipliers)
        return optax.tree.cast_like(updates, like), state

    formula = scale_named(scale)
    return optax.GradientTransformationExtraArgs(
        Routed(
            init,
            lambda params: routes(
                params,
                label(params),
                dimension_numbers,
                sizes,
                splits,
                formula,
                others,
                multipliers_of(params, multipliers),
            ),
        ),
        update,
    )


def _check_default(given: str, **others: object) -> None:
    """Raises ValueError where an argument that `given` replaces differs from its default.

    Arrays pass, since optax.inject_hyperparams turns every default into one.
    """
    for name, default in _defaults(*others).items():
        value = others[name]
        if value is default or isinstance(value, jax.Array):
            continue
        if type(value) is not type(default) or value != default:
            raise ValueError(f"muon takes {given}= or {name}=, not both; leave one out.")


def _defaults(*names: str) -> dict[str, Any]:
    """The defaults of these arguments of `muon`."""
    parameters = inspect.signature(muon).parameters
    return {name: parameters[name].default for name in names}
