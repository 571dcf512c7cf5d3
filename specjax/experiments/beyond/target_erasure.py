"""Muon's first steps on a factorization are blind to the target until a predictable step.

At that step one direction turns. The experiment `target` has the orders: at large widths the part
of the first normalized step that is due to M falls as k^(-3/2) for Muon and as 1/k for gradient
descent. At every width the effect is decided by whether U Uᵀ - M is positive definite
(`specjax.theory.target_erasure`; docs/beyond/target-erasure.md).
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float, Key
from matplotlib.figure import Figure

from specjax import fits, lab, sizes, spectral, sweep
from specjax.lab.drawing import COLORS, draw_estimates, readable_decades
from specjax.lab.estimates import estimate
from specjax.models import deep_linear, matrix_factorization, relu_network
from specjax.models.targets import sign_target
from specjax.theory import target_erasure as theory

Data = dict[str, xr.Dataset]
SHARES = (0.5, 0.75, 1.0, 1.25)
"""The eigenvalue μ of the target over k - d + 1, its transition."""
RATE, STEPS, MOMENTUM = 1 / 40, 70, 0.9
"""Steps are √k/40 long: without a target, U vanishes after at most 40 steps."""
NETWORKS = {"linear": deep_linear, "ReLU": relu_network}
OPTIMIZERS = ["gradient descent", "Muon"]


class Config(lab.Config):
    """Sizes of the factorization and of two-layer networks, and seeds."""

    d: int = lab.config.integer(
        8, least=2, help="rows of U, and inputs and outputs of the networks"
    )
    k: int = lab.config.integer(32, least=4, help="columns of U")
    seeds: int = lab.config.seeds(6000, help="samples of U for one step")
    path_k: int = lab.config.integer(64, least=4, help="columns of U for several steps")
    path_seeds: int = lab.config.seeds(400, help="samples for several steps")
    hs: tuple[int, ...] = lab.config.sizes(
        64, 128, 256, 512, 1024, points=5, help="hidden units of the networks"
    )
    layer_seeds: int = lab.config.seeds(100, help="samples of the networks at every width")


def spike(mu: Array | float, d: int) -> Float[Array, "d d"]:
    """The target μ e₁ e₁ᵀ, without loss of generality since U has the same law in every basis."""
    return jnp.zeros((d, d)).at[0, 0].set(mu)


def first_step(key: Key[Array, ""], k: int, config: Config) -> dict[str, Array]:
    """The effect of a spike on the first step, definiteness of U Uᵀ - M, and a bound."""
    u = matrix_factorization.init(sizes.stream(key, "u"), config.d, k)
    without = spectral.polar(u)

    def step_toward(target: Array) -> tuple[Array, Array]:
        step = spectral.polar(matrix_factorization.gradient(u, target))
        return jnp.linalg.norm(step - without), jnp.linalg.eigvalsh(u @ u.T - target)[0] < 0

    part, negative = jax.vmap(
        lambda share: step_toward(spike(share * (k - config.d + 1), config.d))
    )(jnp.asarray(SHARES))
    z = sizes.normal(sizes.stream(key, "target"), (config.d, config.d))
    full = (z + z.T) / spectral.spectral_norm(z + z.T)
    return {
        "part": part,
        "negative": negative,
        "small": step_toward(full)[0],
        "bound": theory.polar_change_bound(u, full),
    }


def path(key: Key[Array, ""], k: int, config: Config) -> dict[str, Array]:
    """The step at which an eigenvalue k/4 is seen, predicted and measured."""
    u, mu, rate = matrix_factorization.init(key, config.d, k), k / 4, RATE * k**0.5

    def steps(target: Array, momentum: float) -> Array:
        def one(state: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], Array]:
            u, average = state
            average = momentum * average + (1 - momentum) * matrix_factorization.gradient(u, target)
            step = spectral.polar(average)
            return (u - rate * step, average), step

        start = u, matrix_factorization.gradient(u, target)
        return jax.lax.scan(one, start, None, length=STEPS)[1]

    def seen(momentum: float) -> Array:
        parts = steps(spike(mu, config.d), momentum) - steps(spike(0.0, config.d), momentum)
        return theory.first_true(jnp.linalg.norm(parts, axis=(1, 2)) > 1)

    gone = rate * jnp.arange(float(STEPS))
    singular = jnp.linalg.svd(u, compute_uv=False)
    return {
        "predicted": theory.first_true(theory.along(u, jnp.eye(config.d)[0], gone) < mu),
        "used_up": theory.first_true(singular[-1] < gone),
        "seen": seen(0.0),
        "with_momentum": seen(MOMENTUM),
    }


def layers(key: Key[Array, ""], h: int, config: Config, phi: Array) -> dict[str, Array]:
    """The effect of Φ on the first normalized step, by optimizer and layer, linear and ReLU."""

    def parts(gradient: Array, without: Array) -> Array:
        descent = gradient / jnp.linalg.norm(gradient) - without / jnp.linalg.norm(without)
        muon = (spectral.polar(gradient) - spectral.polar(without)) / config.d**0.5
        return jnp.stack([jnp.linalg.norm(descent), jnp.linalg.norm(muon)])

    def measure_network(model: Any, params: Any) -> Array:
        both = zip(model.gradient(params, phi), model.gradient(params, 0 * phi), strict=True)
        return jnp.stack([parts(*pair) for pair in both])

    linear = deep_linear.init(sizes.stream(key, "linear"), (config.d, h, config.d))
    relu = relu_network.init(sizes.stream(key, "ReLU"), config.d, h, config.d)
    return {
        "part": jnp.stack(
            [measure_network(deep_linear, linear), measure_network(relu_network, relu)]
        )
    }


def run_step(config: Config, key: Key[Array, ""]) -> xr.Dataset:
    """Measure one step at a fixed width, in float64."""
    with jax.enable_x64(True):
        measure, k = partial(first_step, config=config), sweep.widths(config.k)
        one = lab.seeded_sweep(key, "first step", measure, config.seeds, k=k)
    return sweep.labelled(one, "share", share=list(SHARES)).isel(k=0)


def run_path(config: Config, key: Key[Array, ""]) -> xr.Dataset:
    """Measure several steps at a fixed width, in float64."""
    with jax.enable_x64(True):
        measure, k = partial(path, config=config), sweep.widths(config.path_k)
        return lab.seeded_sweep(key, "steps", measure, config.path_seeds, k=k).isel(k=0)


def run_layers(config: Config, key: Key[Array, ""]) -> xr.Dataset:
    """Measure one step of networks, in float64."""
    with jax.enable_x64(True):
        phi = sign_target(sizes.stream(key, "target"), config.d, config.d, 3.0)
        measure, h = partial(layers, config=config, phi=phi), sweep.widths(*config.hs)
        found = lab.seeded_sweep(key, "networks", measure, config.layer_seeds, h=h)
    names: dict[str, Any] = {"network": list(NETWORKS), "layer": [1, 2], "optimizer": OPTIMIZERS}
    return sweep.labelled(found, *names, **names)


states = lab.Statements()


def probability(less: int = 0, of_k: bool = False) -> Any:
    """The share of reversed seeds by the closed form, or by a wrong one."""

    def form(config: Config, data: Data) -> xr.DataArray:
        mu = data["step"].share * (config.k - config.d + 1)
        d = 1 if of_k else config.d + less
        return lab.closed_form(lambda values: theory.reversal_probability(values, d, config.k), mu)

    return form


@states(
    "transition",
    "A target μ v vᵀ makes U Uᵀ - M indefinite in a share of samples that is the chi-squared law of"
    " k - d + 1 degrees of freedom at μ.",
    rivals={
        "k degrees": probability(of_k=True),
        "k - d degrees": probability(1),
        "k - d + 2 degrees": probability(-1),
    },
)
def transition(config: Config, data: Data) -> lab.Relation:
    return lab.equals(data["step"]["negative"].astype(float), probability()(config, data))


def roll_seeds(name: str, of: str) -> Any:
    """A control with the values of other seeds."""
    return lab.controls.replacing(name, lambda data: data[name].roll(seed=1), of=of)


@states(
    "transition",
    "Where U Uᵀ - μ v vᵀ is indefinite the target turns Muon's first step over along one direction,"
    " ‖change‖_F = 2 to 1 %, and else it changes it by less than 1, in more than 99 % of samples.",
    controls={"the signs of other samples": roll_seeds("negative", "step")},
)
def turns_one_direction(config: Config, data: Data) -> lab.Relation:
    part = data["step"]["part"]
    agrees = xr.where(data["step"]["negative"], abs(part - 2) < 0.02, part < 1)
    return lab.fraction(agrees.rename("as said"), more_than=0.99)


@states(
    "bound",
    "A target M of norm 1 changes Muon's first step by at most ‖[P, M]‖_F/2λ, P = (U Uᵀ)^(1/2), λ"
    " the least eigenvalue of the symmetric part of (U Uᵀ - M) P.",
    controls={
        "a third of the commutator": lab.controls.replacing(
            "bound", lambda data: data["bound"] / 3, of="step"
        ),
        "a large target": lab.controls.replacing(
            "small", lambda data: data["part"].isel(share=-1, drop=True), of="step"
        ),
    },
)
def bound(config: Config, data: Data) -> lab.Relation:
    return lab.inequality(data["step"]["small"], data["step"]["bound"], slack=0.6, rounding=1e-9)


@states(
    "later-steps",
    "Of a target of eigenvalue k/4 nothing is seen in Muon's steps until U has shrunk so far that U"
    " Uᵀ - M is indefinite: the step at which it is seen is predicted from U at the start to one"
    " step, in more than 95 % of samples.",
    controls={
        "predictions of other samples": roll_seeds("predicted", "path"),
        "when U is used up": lab.controls.replacing("predicted", "used_up", of="path"),
    },
)
def seen_when_predicted(config: Config, data: Data) -> lab.Relation:
    found = data["path"]
    return lab.fraction(
        (abs(found["seen"] - found["predicted"]) <= 1).rename("as predicted"), more_than=0.95
    )


@states(
    "later-steps",
    "Momentum 0.9 makes Muon see the target later, by more than the 10 steps of its memory.",
    controls={"without momentum": lab.controls.replacing("with_momentum", "seen", of="path")},
)
def momentum_delays(config: Config, data: Data) -> lab.Relation:
    delay = (data["path"]["with_momentum"] - data["path"]["seen"]).astype(float)
    return lab.above(delay.rename("steps later"), 1 / (1 - MOMENTUM), "1/(1 - β)")


@states(
    "layers",
    "In both layers of two-layer linear and ReLU networks the part of the first normalized step"
    " that is due to Φ falls as h^(-1/2), to 0.15 in the exponent, for gradient descent and for"
    " Muon.",
    rivals={"1/h": -1, "h^(-1/4)": -0.25, "h^(-3/2)": -1.5},
)
def same_order_in_layers(config: Config, data: Data) -> lab.Relation:
    # Slopes of logarithms: the least singular value of W₂ W₁ - Φ gives the parts of Muon a heavy
    # tail.
    slope = fits.log_slopes(xr.ufuncs.log(data["layers"]["part"]), "h").rename("exponent in h")
    return lab.near(slope, -0.5, within=0.15, called="0.15")


@states(
    "layers",
    "In the output layer of both networks Muon's first step owes more to Φ than that of gradient"
    " descent, at every width.",
    controls={
        "the two exchanged": lab.controls.replacing(
            "part", lambda data: lab.controls.reverse(data["part"], "optimizer"), of="layers"
        )
    }
    | lab.controls.without_lead("optimizer", *OPTIMIZERS[::-1], of="layers"),
)
def more_in_layers(config: Config, data: Data) -> lab.Relation:
    part = data["layers"]["part"].sel(layer=2, drop=True)
    descent, muon = (part.sel(optimizer=name, drop=True).rename(name) for name in OPTIMIZERS)
    return lab.ahead(muon, descent, least=0)


def figure(config: Config, data: Data) -> Figure:
    """Plot the seeds that see the target at first, later steps, and effects in networks."""
    drawn = Figure(figsize=(13, 3.8), layout="constrained")
    first, later, widths = drawn.subplots(1, 3)
    degrees = config.k - config.d + 1
    draw_estimates(first, estimate(data["step"]["negative"].astype(float)), "share")
    fine = np.linspace(0.3, 1.6, 100)
    first.plot(
        fine,
        theory.reversal_probability(fine * degrees, config.d, config.k),
        "k-",
        linewidth=1,
        label="chi-squared law",
    )
    first.set(
        xlabel="μ / (k - d + 1)",
        ylabel="samples in which Muon sees the target",
        title=f"first step, d = {config.d}, k = {config.k}",
    )
    jitter = np.random.default_rng(0).uniform(-0.3, 0.3, config.path_seeds)
    for name, label, color in zip(
        ("seen", "with_momentum"), ("β = 0", f"β = {MOMENTUM}"), COLORS, strict=False
    ):
        later.plot(
            data["path"]["predicted"] + jitter,
            data["path"][name],
            ".",
            markersize=3,
            color=color,
            label=label,
        )
    later.axline((10, 10), slope=1, color="black", linewidth=0.7)
    later.set(
        xlabel="step predicted from U at the start",
        ylabel="step at which Muon sees the target",
        title=f"μ = k/4, k = {config.path_k}",
    )
    median = data["layers"]["part"].median("seed").sel(layer=2)
    for color, network in zip(COLORS, NETWORKS, strict=False):
        for line, optimizer in zip(("--", "-"), OPTIMIZERS, strict=True):
            values = median.sel(network=network, optimizer=optimizer)
            widths.plot(
                values.h,
                values,
                "o" + line,
                color=color,
                markersize=4,
                label=f"{network}, {optimizer}",
            )
    widths.set(
        xlabel="hidden units",
        ylabel="part of the first step due to Φ",
        title="output layers",
        xscale="log",
        yscale="log",
    )
    widths.set_xticks(config.hs, map(str, config.hs))
    widths.minorticks_off()
    readable_decades(widths)
    for axes in (first, later, widths):
        axes.legend(fontsize="small")
    return drawn


EXPERIMENT = lab.Experiment(
    "target-erasure",
    lab.ledger.Ledger.from_conjectures(
        "target-erasure",
        transition=(
            "A target is seen by Muon's first step where it makes U Uᵀ - M indefinite; of a spike"
            " the probability is known."
        ),
        bound=(
            "While U Uᵀ - M is positive definite, a target changes polar(G) by no more than its"
            " commutator with (U Uᵀ)^(1/2) allows, a bound that is not sharp at the size judged."
        ),
        later_steps=(
            "Later steps of Muon do not see the target either, up to one that can be predicted;"
            " momentum makes it later still."
        ),
        layers=(
            "In linear and ReLU layers the target is not erased faster by Muon than by gradient"
            " descent."
        ),
    ),
    title="Muon's first steps do not know the target of a factorization",
    summary=(
        "While U Uᵀ - M is positive definite Muon steps towards zero, whatever the target: a spike"
        " is seen with the probability of a chi-squared law, at a step that is known beforehand,"
        " and momentum makes it later. In linear and ReLU layers it is not so."
    ),
    config=Config,
    measure={"step": run_step, "path": run_path, "layers": run_layers},
    statements=states,
    headlines=("transition", "bound"),
    headlines_read=("step",),
    figure=figure,
    scales={
        "quick": {"seeds": 2000},
        "smoke": {"seeds": 300, "path_seeds": 60, "hs": (24, 48, 96, 192, 384), "layer_seeds": 30},
        "paper": {
            "seeds": 60_000,
            "path_seeds": 4000,
            "hs": (64, 128, 256, 512, 1024, 2048),
            "layer_seeds": 2000,
        },
    },
)
