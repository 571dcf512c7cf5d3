"""A fixed number of polynomial steps bends width exponents; the exact factor corrects for it.

The gradient is U diag(s) Vᵀ with Haar factors: s_k = 1/k², 1/k or 1, or a Gaussian matrix. A
polynomial method maps s_k to p(s_k / ‖s‖), so its effect follows from numbers alone, without a
matrix, and the sweep is judged by that. Measured is the step O on random feature vectors x against
the exact step: ⟨O x, U Vᵀ x⟩, of mean Σ p(s_k / ‖s‖), which for the exact factor is the width.
"""

from collections.abc import Callable
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float, Key

from specjax import fits, lab, sizes, spectral, sweep
from specjax.sizes import AnySize
from specjax.spectral import NewtonSchulz, PolarExpress
from specjax.spectral.polynomials import CUBIC

METHODS: dict[str, NewtonSchulz | PolarExpress] = {
    "muon-5": NewtonSchulz(5),
    "muon-10": NewtonSchulz(10),
    "cubic-15": NewtonSchulz(15, CUBIC),
    "polar-express-8": PolarExpress(8),
    "polar-express-12": PolarExpress(12, 5e-7),
}
CONVERGED = "polar-express-12"
"""The method that knows how small the singular values are, exact up to rounding."""
BENDING = [name for name in METHODS if name != CONVERGED]
POWERS = {"k^-2": 2, "k^-1": 1, "flat": 0}
AXES = {"orthogonalizer": [*METHODS, "exact"], "spectrum": [*POWERS, "gaussian"]}
states = lab.Statements()


class Config(lab.Config):
    """Widths of the square gradients, and samples of their factors and of x."""

    widths: tuple[int, ...] = lab.config.sizes(
        16, 32, 64, 128, least=2, points=4, help="rows and columns W"
    )
    seeds: int = lab.config.seeds(16, help="samples at every width")


def run(config: Config, key: Key[Array, ""]) -> xr.Dataset:
    """Run every method and the exact factor, by width and spectrum, in float64.

    float64 keeps full rank for s_k = 1/k²; in float32 the exact factor also treats singular values
    below 64 roundings as zero, from W = 362 on.
    """
    with jax.enable_x64(True):
        over, of_gradients = {"width": sweep.widths(*config.widths)}, sizes.stream(key, "gradients")
        data = sweep.run(measure, over, num_seeds=config.seeds, key=of_gradients)
    return sweep.labelled(data, *AXES, **AXES)


INPUTS = 256
"""Feature vectors x per seed, enough that the mean of the log is nearly the log of the mean."""


def measure(key: Key[Array, ""], width: AnySize) -> dict[str, Array]:
    """⟨O x, U Vᵀ x⟩, averaged over feature vectors, and ⟨O, U Vᵀ⟩/W, by method and spectrum."""
    z = sizes.normal(sizes.stream(key, "factors"), (3, width, width))
    u, v = _haar(z[:2], width)
    k = jnp.arange(1.0, sizes.padded(width) + 1)
    s = jnp.stack([k**-power for power in POWERS.values()])
    g = jnp.concatenate([(u[None] * s[:, None, :]) @ v.T[None], z[2:]])
    x = sizes.normal(sizes.stream(key, "features"), (width, INPUTS))
    exact = spectral.polar(g)
    steps = jnp.stack([*(spectral.polar(g, method) for method in METHODS.values()), exact])

    def inner(a: Array, b: Array, count: AnySize) -> Array:
        return jnp.sum(a * b[None], axis=(-2, -1)) / jnp.asarray(sizes.active(count), a.dtype)

    return {
        "advance": inner(steps @ x[None, None], exact @ x[None], INPUTS),
        "alignment": inner(steps, exact, width),
    }


def _haar(z: Float[Array, "*batch n n"], width: AnySize) -> Float[Array, "*batch n n"]:
    """Haar orthogonal matrices from Gaussian ones, zero beyond the width."""
    q, r = jnp.linalg.qr(z)
    signs = jnp.where(jnp.diagonal(r, axis1=-2, axis2=-1) < 0, -1.0, 1.0)
    return jnp.where(sizes.block_mask((width, width)), q * signs[..., None, :], 0)


def predicted_alignment(name: str, power: int, width: int, fewer: int = 0) -> float:
    """The mean of p(s_k / ‖s‖) for s_k = k^-power; `fewer` steps give a wrong one."""
    s = np.arange(1.0, width + 1) ** -power
    polynomials = METHODS[name].polynomials()
    steps = polynomials[: len(polynomials) - fewer]
    return float(reduce(lambda values, p: p(values), steps, s / np.linalg.norm(s)).mean())


def predicted(config: Config, power: int, fewer: int = 0) -> xr.DataArray:
    """The predicted alignment of every method at every width."""
    values = [
        [predicted_alignment(name, power, width, fewer) for width in config.widths]
        for name in METHODS
    ]
    return xr.DataArray(values, {"orthogonalizer": list(METHODS), "width": list(config.widths)})


def slope(values: xr.DataArray) -> xr.DataArray:
    """The exponent of a straight line through the logarithms, by seed."""
    return fits.log_slopes(xr.ufuncs.log(values), "width")


def shift(data: xr.Dataset, **at: Any) -> xr.DataArray:
    """The change that a method makes to the exact factor's exponent of ⟨O x, U Vᵀ x⟩, by seed."""
    exponent = slope(data["advance"])
    added = exponent.sel(orthogonalizer=list(METHODS)) - exponent.sel(
        orthogonalizer="exact", drop=True
    )
    return added.sel(at, drop=True).rename("shift")


def predicted_shift(power: int, fewer: int = 0) -> Callable[[Config, xr.Dataset], xr.DataArray]:
    """The exponent that a method adds to anything proportional to its alignment."""
    return lambda config, data: slope(predicted(config, power, fewer)).sel(orthogonalizer=BENDING)


def repeat_advance(**of: str) -> Callable[[Any, Any], Any]:
    """A control with the move of one method, or spectrum, in the place of all."""
    return lab.controls.replacing(
        "advance", lambda data: data["advance"].sel(of, drop=True) + 0 * data["advance"]
    )


@states(
    "scalar-map",
    controls={
        "the methods exchanged": lab.controls.replacing(
            "alignment", lambda data: data["alignment"].roll(orthogonalizer=1)
        ),
        "the spectra exchanged": lab.controls.replacing(
            "alignment", lambda data: data["alignment"].roll(spectrum=1)
        ),
    },
)
def alignment_scalar(config: Config, data: xr.Dataset) -> lab.Relation:
    """⟨O, U Vᵀ⟩/W is the mean of p(s_k/‖s‖), for every method, spectrum and width: the factors do
    not matter.
    """
    form = xr.concat(
        [predicted(config, power) for power in POWERS.values()],
        xr.Variable("spectrum", list(POWERS)),
    )
    found = data["alignment"].sel(orthogonalizer=list(METHODS), spectrum=list(POWERS))
    # Above float64 rounding (1e-16) times the steepest polynomial at 0 (about 1e7), and below any
    # error of interest.
    return lab.zero_error(abs(found - form).rename("error of the alignment"), tolerance=1e-6)


@states(
    "exponent-kept",
    holds=False,
    rivals={
        "1 and the shift of the scalar map": (
            lambda config, data: 1 + float(predicted_shift(2)(config, data)[0])
        )
    },
    controls={"the exact factor": repeat_advance(orthogonalizer="exact")},
)
def grows_as_width(config: Config, data: xr.Dataset) -> lab.Relation:
    """With Muon's five steps, on s_k = 1/k², the features' move ⟨O x, U Vᵀ x⟩ grows as W, as it
    does with the exact factor.
    """
    advance = data["advance"].sel(orthogonalizer="muon-5", spectrum="k^-2", drop=True)
    return lab.equals(slope(advance).rename("exponent of ⟨O x, U Vᵀ x⟩"), 1.0)


@states(
    "shift",
    rivals={
        "no shift": 0.0,
        "the shift on 1/k": predicted_shift(1),
        "one step fewer": predicted_shift(2, fewer=1),
    },
)
def shift_by_scalar_map(config: Config, data: xr.Dataset) -> lab.Relation:
    """On s_k = 1/k² a method, unless told how small they are, adds to the exponent of the exact
    factor what the scalar map says.
    """
    return lab.equals(
        shift(data, orthogonalizer=BENDING, spectrum="k^-2"), predicted_shift(2)(config, data)
    )


@states("spectrum-decides", controls={"1/k² in their place": repeat_advance(spectrum="k^-2")})
def small_elsewhere(config: Config, data: xr.Dataset) -> lab.Relation:
    """On a flat spectrum and on Gaussian matrices no method shifts a width exponent by a tenth."""
    # Exponents of interest are halves and thirds apart.
    return lab.below(abs(shift(data, spectrum=["flat", "gaussian"])), 0.1, "0.1")


@states(
    "spectrum-decides",
    controls={
        "five steps of Muon in its place": lab.controls.replacing(
            "advance",
            lambda data: data["advance"].where(
                data["orthogonalizer"] != CONVERGED,
                data["advance"].sel(orthogonalizer="muon-5", drop=True),
            ),
        )
    },
)
def told_how_small(config: Config, data: xr.Dataset) -> lab.Relation:
    """A method that is told how small the singular values are shifts no exponent, on any of the
    spectra.
    """
    # The remaining shift of a method that reaches every singular value.
    return lab.below(abs(shift(data, orthogonalizer=CONVERGED)), 1e-3, "0.001")


EXPERIMENT = lab.Experiment(
    "orthogonalizer-error",
    lab.ledger.Ledger.from_conjectures(
        "muon",
        scalar_map=(
            "The error of polynomial steps depends on the singular values alone, not on the"
            " singular vectors."
        ),
        exponent_kept=(
            "A fixed number of steps is as good as the exact factor where exponents in the width"
            " are measured."
        ),
        shift=(
            "The exponent that polynomial steps add can be computed from the spectrum, and taken"
            " out with the exact factor."
        ),
        spectrum_decides=(
            "Only where singular values fall below the reach of the steps are exponents shifted."
        ),
    ),
    title="Width exponents bent by the orthogonalizer",
    summary=(
        "Polynomial steps reach singular values down to a fixed fraction of ‖G‖_F: on s_k = 1/k²"
        " Muon's five add -0.89 to a width exponent, as the exact factor on the same seeds shows;"
        " on flat and Gaussian spectra the shift is small."
    ),
    config=Config,
    measure=run,
    statements=states,
    headlines=("grows-as-width",),
    scales={
        "smoke": {"widths": (16, 24, 48, 64)},
        "paper": {"widths": (32, 64, 128, 256, 512, 1024), "seeds": 12},
    },
)
