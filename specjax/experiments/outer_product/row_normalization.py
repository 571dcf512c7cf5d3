"""Appendix D: orthogonalization against row normalization, at initialization and in training.

If V Vᵀ is diagonal, the polar factor of V is V with its rows normalized. The *distance* of the two
steps in one sample, up to a common step size, is measured against the width for the five weight
matrices of the paper's summary: for V = G, and along Muon's own path V ← β V + (1 - β) G, W ← W -
rate √max(m, n) polar(V). Square matrices of Gaussian noise are compared.
"""

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float, Key

from specjax import lab, sizes, spectral, sweep
from specjax.experiments.ledgers import ledger
from specjax.experiments.outer_product.layers import D_IN, D_OUT, LAYERS, problem
from specjax.experiments.outer_product.statistics import extrapolate, gram
from specjax.lab.relations.limits import DECAY
from specjax.sizes import AnySize

Data = dict[str, xr.Dataset]
states = lab.Statements()


class Config(lab.Config):
    """Widths, seeds, and the training."""

    # A single row is a multiple of its polar factor.
    widths: tuple[int, ...] = lab.config.sizes(
        16, 32, 64, 128, 256, least=2, points=5, help="k, or hidden units d_1"
    )
    noise_widths: tuple[int, ...] = lab.config.sizes(
        8, 16, 32, 64, 128, least=2, points=5, help="rows of the square matrices"
    )
    seeds: int = lab.config.seeds(80, help="initializations at every width")
    noise_seeds: int = lab.config.seeds(400, help="square matrices at every width")
    steps: int = lab.config.integer(
        20, least=1, most=lab.config.MOST_COUNT, help="steps of momentum"
    )
    rate: float = lab.config.number(
        0.05, above=0, help="root mean square change of a weight in one step"
    )
    momentum: float = lab.config.number(0.95, above=0, below=1, help="β of the moving average V")


def distance(v: Float[Array, "m n"], polar: Float[Array, "m n"]) -> Float[Array, ""]:
    """√(1 - cos²) of V with normalized rows and its polar factor."""
    return spectral.direction_error(spectral.normalize_rows(v), polar)


def run(config: Config, key: Key[Array, ""]) -> Data:
    """The distance by layer, width, seed and step; that of noise, and dominance of V Vᵀ."""
    target_key = sizes.stream(key, "target")

    def training(key: Key[Array, ""], width: AnySize) -> dict[str, Array]:
        params, gradient = problem(key, width, target_key)
        size = jnp.sqrt(jnp.maximum(sizes.active(width), max(D_IN, D_OUT)))

        def step(state: tuple, _: None) -> tuple[tuple, dict[str, Array]]:
            params, average = state
            orthogonal = jax.tree.map(spectral.polar, average)
            params = jax.tree.map(lambda w, o: w - config.rate * size * o, params, orthogonal)
            following = jax.tree.map(
                lambda v, g: config.momentum * v + (1 - config.momentum) * g,
                average,
                gradient(params),
            )
            return (params, following), jax.tree.map(distance, average, orthogonal)

        # V starts at the first gradient: starting from zero would only change it by a factor, which
        # these steps ignore.
        return jax.lax.scan(step, (params, gradient(params)), length=config.steps + 1)[1]

    def noise(key: Key[Array, ""], width: AnySize) -> dict[str, Array]:
        v = sizes.normal(key, (width, width))
        return {
            "distance": distance(v, spectral.polar(v)),
            "ratio": spectral.dominance_ratio(gram(v), width),
        }

    over, square = (
        {"width": sweep.widths(*widths)} for widths in (config.widths, config.noise_widths)
    )
    trained = lab.seeded_sweep(key, "weights", training, config.seeds, **over)
    return {
        "training": sweep.labelled(trained, "step", outputs=[*LAYERS]),
        "noise": lab.seeded_sweep(key, "noise", noise, config.noise_seeds, **square),
    }


def beyond_decay(ratios: xr.DataArray) -> xr.DataArray:
    """The largest width's distance less what the slowest decay leaves of the smallest's."""
    first, last = (ratios.isel(width=place) for place in (0, -1))
    left = float(last["width"] / first["width"]) ** DECAY
    return (last.drop_vars("width") - left * first.drop_vars("width")).rename(
        "distance beyond width^(-1/4)"
    )


def state_layer(layer: str, when: str, at: str, step: int) -> None:
    """State that a layer's distance vanishes at a step, or where it does not, that it lasts."""
    other = "linear_hidden" if layer == "factorization" else "factorization"
    controls = {LAYERS[other]: lab.controls.replacing(layer, other, of="training")}
    name, vanishes = f"{layer.replace('_', '-')}-{when}", layer == "factorization"
    # After training the distances of the factorization fall so slowly up to width 1024 that they
    # resemble the networks'.
    known = step == 0

    def distances(data: Data) -> xr.DataArray:
        return data["training"][layer].isel(step=step)

    states(
        "appendix-d-limit",
        f"{LAYERS[layer]}: {at} the polar factor of V becomes V with normalized rows as the width"
        " grows.",
        name=name,
        holds=vanishes if known else None,
        controls=controls,
    )(lambda config, data: lab.vanishes(distances(data), "width"))
    if not vanishes:
        states(
            "appendix-d-limit",
            f"{LAYERS[layer]}: {at} the distance of the two at the largest width is more than"
            " width^(-1/4), the slowest decay that counts, leaves of that at the smallest.",
            name=f"{name}-lasts",
            corrected=True,
            controls=controls,
            holds=True if known else None,
            post_hoc=(
                "That the distance settles was refuted after training, where it grows at these"
                " widths; judged on another seed."
            ),
        )(
            lambda config, data: lab.above(
                beyond_decay(distances(data)), 0.0, "what is left of the distance"
            )
        )


for each in LAYERS:
    state_layer(each, "initial", "at initialization", 0)
for each in LAYERS:
    state_layer(each, "trained", "at the last step of the training", -1)


OPEN = (
    "It was confirmed until relations asked for a logarithm in any unit beside a rival: 1000"
    " samples exclude k^(-1/4), and not k^(-1/4) (log k)^(-1.6)."
)


@states(
    "appendix-d-limit",
    corrected=True,
    rivals={"1/k, as in expectation": -1.0, "k^(-1/4)": -0.25},
    holds=None,
    post_hoc=OPEN,
)
def factorization_rate(config: Config, data: Data) -> lab.Relation:
    """Matrix factorization: at initialization the distance falls as k^(-1/2)."""
    return lab.scales_as(data["training"]["factorization"].isel(step=0), "width", -0.5)


@states(
    "section-2-same-operation",
    "Where V Vᵀ is diagonally dominant, its off-diagonal entries being small against its diagonal,"
    " the two are the same operation: so it is for square Gaussian noise, as its rows and columns"
    " grow.",
    holds=False,
    controls={
        "matrix factorization": lambda config, data: {
            **data,
            "noise": data["training"].isel(step=0).rename(factorization="distance"),
        }
    },
)
def noise_vanishes(config: Config, data: Data) -> lab.Relation:
    return lab.vanishes(data["noise"]["distance"], "width")


@states("section-2-same-operation", corrected=True, rivals={"1/width": -1.0, "no fall": 0.0})
def noise_ratio(config: Config, data: Data) -> lab.Relation:
    """Of square Gaussian noise the ratio of off-diagonal to diagonal entries of V Vᵀ vanishes as
    1/√width.
    """
    return lab.scales_as(data["noise"]["ratio"], "width", -0.5)


@states(
    "section-2-same-operation",
    corrected=True,
    rivals={
        "√(1 - 8/3π), without the square": float(np.sqrt(1 - 8 / (3 * np.pi))),
        "√(1 - (π/4)²), of the mean of a uniform disc's width": float(
            np.sqrt(1 - (np.pi / 4) ** 2)
        ),
        "1/2": 0.5,
    },
)
def noise_limit(config: Config, data: Data) -> lab.Relation:
    """The distance of the two steps of square Gaussian noise tends to √(1 - (8/3π)²)."""
    # Its rows have one norm, and its mean singular value is 8/3π of their root mean square.
    limit = float(np.sqrt(1 - (8 / (3 * np.pi)) ** 2))
    return lab.equals(
        extrapolate(data["noise"]["distance"], "width").rename("distance of noise"), limit
    )


EXPERIMENT = lab.Experiment(
    "row-normalization",
    ledger("outer-product"),
    title="Orthogonalization against row normalization",
    summary=(
        "The two steps approach each other in matrix factorization alone, as k^(-1/2); in two-layer"
        " networks with fixed inputs and outputs they stay apart along Muon's own path, and for"
        " square noise, whose off-diagonal entries vanish, their distance stays at 0.53."
    ),
    config=Config,
    measure=run,
    statements=states,
    scales={
        "quick": {"seed": 1, "seeds": 40, "noise_seeds": 200},
        "smoke": {"seeds": 40, "noise_widths": (4, 6, 8, 12, 16), "noise_seeds": 60, "steps": 2},
        "paper": {
            "widths": (16, 32, 64, 128, 256, 512, 1024),
            "noise_widths": (8, 16, 32, 64, 128, 256),
            "seeds": 400,
            "steps": 100,
        },
    },
)
