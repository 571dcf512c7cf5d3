"""The optimizers of published trainings, each complete and with the routing and options of `muon`:
MuonClip of Kimi K2, nanochat, modded-nanogpt, MARS-M.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from specjax.arguments import REAL, check_number, checked
from specjax.optim._cautious import add_cautious_decay
from specjax.optim._float32_wrapper import in_float32
from specjax.optim._hyperparameters import Number, takes_schedules
from specjax.optim._mars import mars_correction
from specjax.optim._muon import muon
from specjax.optim._muon_variants import check_free, with_adamw
from specjax.optim._normuon import scale_by_neuron_moment
from specjax.optim._orthogonal import matrix_transform, normalize_columns
from specjax.optim._qk_clip import qk_clip
from specjax.optim._routing import Routed
from specjax.optim._scales import Extent, Scale, scale_named, sqrt_max_1_out_over_in
from specjax.optim.fused_projections import Splits
from specjax.optim.matrices import DimensionNumbers
from specjax.spectral.float_range import frobenius, ratio
from specjax.spectral.methods import NewtonSchulz
from specjax.spectral.polynomials import Quintic

_EXPRESS = (
    (8.156554524902461, -22.48329292557795, 15.878769915207462),
    (4.042929935166739, -2.808917465908714, 0.5000178451051316),
    (3.8916678022926607, -2.772484153217685, 0.5060648178503393),
    (3.285753657755655, -2.3681294933425376, 0.46449024233003106),
    (2.3465413258596377, -1.7097828382687081, 0.42323551169305323),
)
"""Polar Express (Amsel et al. 2025) for five steps, as nanochat and modded-nanogpt have it."""


def _polar_express(divisor: float) -> NewtonSchulz:
    """Five steps on a matrix over `divisor` times its norm; the first polynomial divides."""
    (a, b, c), *others = _EXPRESS
    first = Quintic(a / divisor, b / divisor**3, c / divisor**5)
    return NewtonSchulz(len(_EXPRESS), (first, *(Quintic(*each) for each in others)))


def _method_unless_given(options: Mapping[str, Any], divisor: float) -> dict[str, Any]:
    """Polar Express as `method`, unless the user gave coefficients or steps."""
    given = "ns_coeffs" in options or "ns_steps" in options
    return {} if given else {"method": _polar_express(divisor)}


def _neurons_and_decay(
    name: str,
    options: Mapping[str, Any],
    scale: Scale,
    first: tuple[Callable[[Array], Array], Scale],
    beta2: Number,
    decay: optax.GradientTransformation,
) -> Callable[..., optax.GradientTransformation]:
    """What follows the polar factor in both speed runs: `first`, a function of matrices and its
    scale, in place of the scale that `muon` gave the factor; a second moment for each neuron;
    decay; and then the scale, which so multiplies the decay too.
    """

    def after(**axes: Any) -> optax.GradientTransformation:
        whole: Any = partial(matrix_transform, name=name, sizes=options.get("sizes"), **axes)
        function, own_scale = first
        return in_float32(
            optax.chain(
                whole(function, scale=own_scale),
                scale_by_neuron_moment(beta2, "longer", **axes),
                decay,
                whole(_unchanged, scale=scale),
            )
        )

    return after


@takes_schedules
@checked
def muon_clip(
    learning_rate: Number, heads: PyTree, threshold: Number = 100.0, **options: Any
) -> optax.GradientTransformationExtraArgs:
    """MuonClip (Kimi Team 2025, Kimi K2, arXiv 2507.20534, Algorithm 1): `muon` at the root mean
    square of AdamW, and `qk_clip` of every head after the step.

    M ← μ M + G, W ← W - η (0.2 √max(in, out) polar(M) + λ W), and then for every head with a
    largest logit S above τ its queries and keys times √(τ / S). The steps are those of the
    algorithm, as its authors' notes and two large trainers have it (see `qk_clip`), up to the
    method: no coefficients are named, and this takes those of `muon`. The report has η = 2e-4 and λ
    = 0.1. AdamW, of which it says nothing, has the decays 0.9 and 0.95 of the same authors'
    Moonlight (arXiv 2502.16982).

    The model returns the largest logits of its forward pass, and `update(updates, state, params,
    max_logits=tree)` takes them; `specjax.optim.qk_clip` says in which form.

    Args:
        learning_rate: As for `muon`.
        heads: As for `qk_clip`: which axes of which leaves are heads.
        threshold: τ, positive, a number, a scalar array or a schedule.
        **options: All other arguments of `muon`, with `beta=0.95`, `nesterov=False`,
            `bias_correction=False` and `scale="point_two_sqrt_max"` by default. Leaves may have any
            shape; updates have the dtypes of the parameters.

    Raises:
        ValueError: as `muon` and `qk_clip`.

    Examples:
        >>> import jax.numpy as jnp
        >>> from specjax import optim
        >>> params = {"query": jnp.ones((8, 2, 4)), "key": jnp.ones((8, 2, 4))}
        >>> heads = optim.Heads((1,))
        >>> optimizer = optim.muon_clip(2e-4, heads, weight_decay=0.1, labels="matrix")
        >>> logits = {"query": jnp.array([50.0, 400.0]), "key": jnp.array([50.0, 400.0])}
        >>> state = optimizer.init(params)
        >>> updates, _ = optimizer.update(params, state, params, max_logits=logits)
        >>> [round(float(x), 2) for x in (params["key"] + updates["key"])[0, :, 0]]
        [1.0, 0.5]

    """
    chosen = with_adamw(options, b2=0.95, eps=1e-8)
    chosen = {"nesterov": False} | chosen
    if "consistent_rms" not in options:
        chosen = {"scale": "point_two_sqrt_max"} | chosen
    inner = muon(learning_rate, **chosen)
    steps = optax.chain(inner, qk_clip(threshold, heads))
    return optax.GradientTransformationExtraArgs(
        Routed(steps.init, inner.init.routes),
        steps.update,
    )


@takes_schedules
@checked
def nanochat(
    learning_rate: Number,
    weight_decay: Number = 0.0,
    beta2: Number = 0.9,
    *,
    weight_decay_mask: Any = None,
    **options: Any,
) -> optax.GradientTransformationExtraArgs:
    """The optimizer of nanochat (karpathy/nanochat, `nanochat/optim.py`, July 2026): `muon` with
    balanced outputs, Polar Express, a second moment for each neuron and cautious decay.

    The weights of each output are brought to one norm (MuonEq, arXiv 2603.28254), five steps of
    Polar Express follow, the factor is brought to the Frobenius norm √min(in, out) (Muon+, arXiv
    2602.21545), each index of the longer side is divided by the root of its second moment
    (NorMuon), and an entry decays where that agrees with its step; all of it, decay included, times
    √max(1, out/in). The momentum is Nesterov's without bias correction. Two things differ: the code
    adds 1e-6 to a norm and bounds others from below, and iterates in bfloat16.

    The code has λ = 0.28 at its reference size and takes it to zero by a cosine; β goes from 0.85
    to 0.97 in 400 steps and down to 0.9 while the rate falls: pass schedules. AdamW has eps = 1e-10
    and the decays of the code, 0.8 and for embeddings 0.995, readouts 0.96, the rest 0.95. Its
    weight decays are left out: 0.001, 0.01 and at most 0.05. Its rates are
    `adam_learning_rate={"embedding": 0.2, "readout": 0.004, "other": 0.5}`, the first two times
    (width / 768)^(-1/2).

    Args:
        learning_rate: As for `muon`; the code's is 0.02. For weights stored as (out, in) also pass
            `muon_weight_dimension_numbers=OUT_IN` or a layout.
        weight_decay: λ, multiplied by the learning rate and the scale; matrices only.
        beta2: The decay of the second moment, in [0, 1), a number, a scalar array or a schedule.
        weight_decay_mask: Which leaves decay, as for `add_cautious_decay`.
        **options: All other arguments of `muon`, except `before`, `after`, `adaptive` and
            `consistent_rms`; `scale` is the last factor. Leaves may have any shape; updates have
            the dtypes of the parameters.

    Raises:
        ValueError: as `muon`, `scale_by_neuron_moment` and `add_cautious_decay`, and for an option
            that is taken.

    Examples:
        >>> import jax.numpy as jnp
        >>> from specjax import optim
        >>> params = {"weight": jnp.eye(4, 16), "bias": jnp.ones(16)}
        >>> optimizer = optim.nanochat(0.02, 0.28)
        >>> updates, state = optimizer.update(params, optimizer.init(params), params)
        >>> round(float(jnp.linalg.norm(updates["weight"]) / 0.02), 2)
        5.12

    """
    check_free("nanochat", options, "before", "after", "adaptive", "consistent_rms")
    check_number(weight_decay, "weight_decay", REAL, "nanochat")
    scale = scale_named(options.get("scale", sqrt_max_1_out_over_in))

    def before(
        momentum: optax.GradientTransformation, *, dimension_numbers: DimensionNumbers, **_: Any
    ) -> optax.GradientTransformation:
        return optax.chain(momentum, normalize_columns(dimension_numbers=dimension_numbers))

    decay = add_cautious_decay(weight_decay, weight_decay_mask)
    after = _neurons_and_decay("nanochat", options, scale, (_unit, _norm_of_factor), beta2, decay)
    chosen = {"before": before, "after": after} | _method_unless_given(options, 1.01)
    b2 = {"embedding": 0.995, "readout": 0.96, "other": 0.95}
    return muon(learning_rate, **chosen | with_adamw(options, b1=0.8, b2=b2, eps=1e-10))


@takes_schedules
@checked
def modded_nanogpt(
    learning_rate: Number,
    weight_decay: Number = 0.0,
    beta2: Number = 0.9,
    *,
    weight_decay_mask: Any = None,
    **options: Any,
) -> optax.GradientTransformationExtraArgs:
    """The optimizer of the speed run of GPT-2 small (KellerJordan/modded-nanogpt, `train_gpt.py` of
    1 August 2026): `muon` with Polar Express, a second moment for each neuron and cautious decay.

    After five steps of Polar Express each index of the longer side is divided by the root of its
    second moment, at the norm of the factor (NorMuon), and an entry decays by λ η where that agrees
    with its step; all of it, decay included, times η √max(1, out/in). So the decay goes with the
    square of the rate. The momentum is Nesterov's without bias correction. These steps are those of
    the code, with three differences: the code adds 1e-6 to a norm, iterates in bfloat16, and keeps
    weights in bfloat16 with their lost digits beside them.

    The code has η = 0.023 and λ = 1.2. β goes from 0.85 to 0.95 in 300 steps and back in the last
    50: pass a schedule. Its down projections are stored as (in, out), which with a factor 2 of
    their own makes `multipliers={"down": 4.0}`. It cuts queries and keys into pairs of heads:
    `splits={"query": (2 * head,) * (heads // 2)}`.

    AdamW has eps = 1e-10 and the decays of the code, 0.5 and 0.95 for embeddings and readouts, 0.9
    and 0.99 for the rest; embeddings of values and bigrams have 0.75 there. Its rate is 0.008.
    Three things of the code are left out: AdamW steps every second time, on the sum of two
    gradients; it decays like the matrices, by 0.75 times the square of the rate for embeddings and
    readouts; and these are one leaf until two thirds of the training.

    Args:
        learning_rate: η, as for `muon`. For weights stored as (out, in) also pass
            `muon_weight_dimension_numbers=OUT_IN` or a layout.
        weight_decay: λ, multiplied by the square of the learning rate and the scale; matrices only.
        beta2: The decay of the second moment, in [0, 1), a number, a scalar array or a schedule.
        weight_decay_mask: Which leaves decay, as for `add_cautious_decay`.
        **options: All other arguments of `muon`, except `after`, `adaptive` and `consistent_rms`.
            Leaves may have any shape; updates have the dtypes of the parameters.

    Raises:
        ValueError: as `muon`, `scale_by_neuron_moment` and `add_cautious_decay`, and for an option
            that is taken.

    Examples:
        >>> import jax.numpy as jnp
        >>> from specjax import optim
        >>> params = {"weight": jnp.eye(4, 16), "bias": jnp.ones(16)}
        >>> optimizer = optim.modded_nanogpt(0.023, 1.2, adam_learning_rate=0.008)
        >>> updates, state = optimizer.update(params, optimizer.init(params), params)

    """
    check_free("modded_nanogpt", options, "after", "adaptive", "consistent_rms")
    check_number(weight_decay, "weight_decay", REAL, "modded_nanogpt")
    scale = scale_named(options.get("scale", sqrt_max_1_out_over_in))
    dtype = jnp.result_type(float)
    decay = add_cautious_decay(
        jnp.asarray(weight_decay, dtype) * jnp.asarray(learning_rate, dtype), weight_decay_mask
    )

    def unscaled(fan_in: Extent, fan_out: Extent) -> Any:
        return 1 / scale(fan_in, fan_out)

    first = (_unchanged, unscaled)
    after = _neurons_and_decay("modded_nanogpt", options, scale, first, beta2, decay)
    chosen = {"after": after} | _method_unless_given(options, 1.02)
    b1 = {"embedding": 0.5, "readout": 0.5, "other": 0.9}
    b2 = {"embedding": 0.95, "readout": 0.95, "other": 0.99}
    return muon(learning_rate, **chosen | with_adamw(options, b1=b1, b2=b2, eps=1e-10))


@takes_schedules
@checked
def mars_m(
    learning_rate: Number,
    gamma: Number = 0.025,
    beta: Number = 0.95,
    *,
    exact: bool = False,
    **options: Any,
) -> optax.GradientTransformationExtraArgs:
    """MARS-M (Liu, Yuan and Gu 2025, arXiv 2510.21800): `muon` with `mars_correction` of the
    gradients of its matrices.

    C ← G + γ β / (1 - β) (G - G'), clipped to the Frobenius norm 1 matrix by matrix, M ← β M + (1 -
    β) C, and W ← W - η (0.2 √max(in, out) polar(M) + λ W). G' is the gradient of the step before
    (Algorithm 3, MARS-M-approx), or with `exact` that at the parameters before on this batch
    (Algorithm 2). The first gradient is not corrected, as in the algorithms; the authors' code
    (AGI-Arena/MARS, `MARS_M/optimizers/mars_m.py`) starts from G' = 0, which makes it 1.475 times
    as large, before the clip. The code adds 1e-7 to a norm and iterates in bfloat16. All other
    leaves go to AdamW, with its decays 0.9 and 0.95 and without a correction; the code's ε is there
    multiplied by the correction of the second moment. The paper's λ is 0.1 in both.

    Args:
        learning_rate: As for `muon`; steps have the root mean square of AdamW's, so its rates fit.
        gamma: γ, the strength of the correction.
        beta: β of the momentum and the correction, in [0, 1), a number, a scalar array or a
            schedule.
        exact: Whether the caller passes G', by `update(updates, state, params,
            previous_gradient=tree)` with the structure of the parameters.
        **options: All other arguments of `muon`, with `nesterov=False`, `bias_correction=False` and
            `scale="point_two_sqrt_max"` by default, except `before`. Leaves may have any shape;
            updates have the dtypes of the parameters.

    Raises:
        ValueError: as `muon` and `mars_correction`, and for `before`.

    Examples:
        >>> import jax.numpy as jnp
        >>> from specjax import optim
        >>> params = {"weight": jnp.ones((4, 4)), "bias": jnp.ones(4)}
        >>> optimizer = optim.mars_m(6e-3, weight_decay=0.1)
        >>> updates, state = optimizer.update(params, optimizer.init(params), params)

    """
    check_free("mars_m", options, "before")

    def before(
        momentum: optax.GradientTransformation,
        *,
        dimension_numbers: DimensionNumbers,
        splits: Splits | None,
    ) -> optax.GradientTransformation:
        clip = matrix_transform(
            _at_most_one, "mars_m", dimension_numbers=dimension_numbers, splits=splits
        )
        return optax.chain(mars_correction(gamma, beta, exact=exact), clip, momentum)

    chosen: dict[str, Any] = {"nesterov": False, "beta": beta, "before": before}
    if "consistent_rms" not in options:
        chosen["scale"] = "point_two_sqrt_max"
    return muon(learning_rate, **chosen | with_adamw(options, b2=0.95, eps=1e-8))


def _unchanged(x: Float[Array, "batch m n"]) -> Float[Array, "batch m n"]:
    return x


def _unit(x: Float[Array, "batch m n"]) -> Float[Array, "batch m n"]:
    return ratio(x, frobenius(x)[:, None, None])


def _norm_of_factor(fan_in: Extent, fan_out: Extent) -> Array:
    return jnp.sqrt(jnp.minimum(fan_in, fan_out))


def _at_most_one(x: Float[Array, "batch m n"]) -> Float[Array, "batch m n"]:
    return x / jnp.maximum(frobenius(x), 1)[:, None, None].astype(x.dtype)
