"""Figure 3 and Appendix A: Muon's (GᵀG)^(-1/2) beside ScaledGD's (XᵀX)⁻¹ along a run of Muon."""

from typing import Any

import jax
import jax.numpy as jnp
import xarray as xr
from jaxtyping import Array, Key
from matplotlib.figure import Figure

from specjax import lab, sizes, spectral, sweep
from specjax.experiments.preconditioning import runs
from specjax.linalg import svd
from specjax.models import conditioned, factorization_spectra, matrix_factorization
from specjax.theory.preconditioning import scalar

# A smaller share of ‖P‖² outside of blocks, or off the diagonal, is invisible in a heat map.
SHARE, VISIBLE = 0.01, "1 % of ‖P‖²"


class Config(lab.Config):
    """Sizes, and the steps at which the preconditioners are compared."""

    d: int = lab.config.integer(20, least=2, help="rows of the factor")
    r: int = lab.config.integer(
        5, least=2, most=12, help="rank of the target and columns of the factor"
    )
    kappa: float = lab.config.number(10.0, least=1, help="condition number of the target")
    start_scale: float = lab.config.number(1e-3, above=0, help="scale of the start, small")
    times: tuple[int, ...] = lab.config.sizes(
        1,
        10,
        50,
        200,
        points=2,
        most=lab.config.MOST_COUNT,
        help="steps at which both are compared",
    )
    seeds: int = lab.config.seeds(3000, least=10, help="targets and starts")


def run(config: Config, key: Key[Array, ""]) -> dict[str, xr.Dataset]:
    """Both preconditioners at each time, the steps of Appendix A, and late scalar distances."""

    def path(key: Array, kappa: Array) -> dict[str, Array]:
        return {**_path(config, key, kappa), **_appendix(config, key, kappa)}

    with jax.enable_x64(True):
        found = lab.seeded_sweep(key, "paths", path, config.seeds, kappa=sweep.values(config.kappa))
        zigzag = lab.seeded_sweep(
            key, "zigzag", _zigzag, 2000, lam=sweep.values(1.0, 0.1, 1e-2, 1e-3, 1e-4)
        )
    dims, times = ("time", "preconditioner", "row", "column"), list(config.times)
    found = sweep.labelled(
        found.isel(kappa=0, drop=True), *dims, time=times, preconditioner=["muon", "scaled"]
    )
    return {"path": found, "zigzag": zigzag}


def _path(config: Config, key: Array, kappa: Array) -> dict[str, Array]:
    r = config.r
    posed = conditioned.factorization(
        sizes.stream(key, "problem"), kappa, config.d, r, r, config.start_scale
    )
    transform = runs.transformation("muon-plateau", key, jnp.full_like(kappa, 0.23), posed)
    x = conditioned.along(posed, transform, max(config.times), lambda x: x)[
        jnp.asarray(config.times)
    ]
    g = jax.vmap(posed.gradient)(x)
    muon, scaled = _inverse_power(g, 1 / 2), _inverse_power(x, 1.0)
    p = jnp.stack([muon, scaled], axis=1)
    # Controls without the entries that join the first column to the others, and without
    # off-diagonal entries.
    blocks, diagonal = p.at[..., 0, 1:].set(0).at[..., 1:, 0].set(0), p * jnp.eye(r)[None, None]
    outside = spectral.dominance.off_block_energy
    found = {"p": p, "outside": outside(p), "outside_of_blocks": outside(blocks)}
    found |= {
        "off": spectral.dominance.off_diagonal_energy(p),
        "off_diagonals": spectral.dominance.off_diagonal_energy(diagonal),
    }
    # Stacked row by row the step is I ⊗ (GᵀG)^(-1/2) applied to the gradient, so each row by itself
    # is multiplied.
    steps, shifted = spectral.polar(g), jnp.roll(muon, 1, axis=(1, 2))
    size = jnp.linalg.norm(steps, axis=(1, 2))
    for end, p in (("", muon), ("_shifted", shifted)):
        found[f"likeness{end}"] = spectral.dominance.traceless_cosine(p, scaled)
        found[f"step_gap{end}"] = jnp.linalg.norm(steps - g @ p, axis=(1, 2)) / size
    return found


def _appendix(config: Config, key: Array, kappa: Array) -> dict[str, Array]:
    """Directions of Muon and ScaledGD where σ² - λ = c σ for every eigenvalue, and at doubled σ."""
    spectrum = factorization_spectra.logarithmic_spectrum(config.r, kappa)
    at = factorization_spectra.target(sizes.stream(key, "basis"), config.d, spectrum)
    frame = factorization_spectra.aligned_start(sizes.stream(key, "frame"), at, config.r, 1.0).frame
    c = 0.3
    sigma = (c + jnp.sqrt(c**2 + 4 * spectrum)) / 2

    def gap(values: Array) -> Array:
        x = factorization_spectra.composed(at.basis, values, frame)
        gradient = matrix_factorization.gradient(x, at.matrix)
        scaled = gradient @ _inverse_power(x, 1.0)
        return jnp.linalg.norm(
            spectral.polar(gradient) - scaled * jnp.sqrt(float(config.r)) / jnp.linalg.norm(scaled)
        )

    return {"gap": gap(sigma), "gap_elsewhere": gap(2 * sigma)}


def _zigzag(key: Array, lam: Array) -> dict[str, Array]:
    """Late distances from the root, in units of the step and of the root."""
    # The last step, 0.9^100 = 3e-5, is far smaller than every root.
    rates = runs.prefactors(sizes.stream(key, "prefactors"), 0.9, 101)[1]
    start = jax.random.uniform(sizes.stream(key, "start"))
    distance = scalar.distance(scalar.factorization_path(start, lam, rates)[-2], lam)
    return {"in_steps": distance / rates[-1], "in_roots": distance / (jnp.sqrt(lam) * rates[-1])}


def _inverse_power(x: Array, power: float) -> Array:
    """(xᵀx)^(-power) of matrices of full column rank."""
    _, s, vt = svd(x)
    return (jnp.swapaxes(vt, -1, -2) * s[..., None, :] ** (-2 * power)) @ vt


states = lab.Statements()
IN_ROOTS = {"in units of the root": lab.controls.replacing("in_steps", "in_roots", of="zigzag")}
DIAGONALS = {"their diagonals": lab.controls.replacing("off", "off_diagonals", of="path")}
FIRST = (
    "After one step X has orthogonal columns of one length, and (XᵀX)⁻¹ is a multiple of I; judged"
    " on other seeds without it."
)
APART = {
    "what joins the first column to the others left out": lab.controls.replacing(
        "outside", "outside_of_blocks", of="path"
    )
}
SHIFTED = {
    "blocks with rows and columns shifted": lab.controls.replacing(
        "step_gap", "step_gap_shifted", of="path"
    )
}
EXCHANGED = {
    "the two exchanged": lab.controls.exchanging("likeness", "likeness_shifted", of="path"),
    "half of the lead": lab.controls.replacing(
        "likeness", lambda path: (path["likeness"] + path["likeness_shifted"]) / 2, of="path"
    ),
}


def _share(data: Any, what: str) -> xr.DataArray:
    return data["path"][what].transpose("preconditioner", ...).rename("share of ‖P‖²")


@states(
    "appendix-a-identity",
    controls={"σ twice as large": lab.controls.replacing("gap", "gap_elsewhere", of="path")},
)
def identity(config: Config, data: Any) -> lab.Relation:
    """Where |σ_i² - λ_i| = c σ_i for every i, Muon's step is ScaledGD's, up to its length."""
    return lab.zero_error(data["path"]["gap"], tolerance=1e-10)


@states("appendix-a-zigzag", rivals={"√λ": 0.5, "1/√λ": -0.5}, controls=IN_ROOTS)
def zigzag(config: Config, data: Any) -> lab.Relation:
    """Near the solution the distance of a scalar sequence to its root is set by the step and not by
    λ.
    """
    return lab.scales_as(data["zigzag"]["in_steps"], "lam", 0, fit="power law")


@states("figure-3-block-diagonal", controls=APART, holds=False)
def blocks(config: Config, data: Any) -> lab.Relation:
    """Along the run both preconditioners, k × k, are block-diagonal: some two blocks leave out at
    most 1 % of ‖P‖², on average.
    """
    return lab.below(_share(data, "outside"), SHARE, VISIBLE)


@states(("figure-3-block-diagonal", "eq-17"), controls=SHIFTED, corrected=True)
def stacked(config: Config, data: Any) -> lab.Relation:
    """The preconditioner of the stacked gradient is block-diagonal, by form: d equal blocks
    (GᵀG)^(-1/2), one for each row of G.
    """
    return lab.zero_error(data["path"]["step_gap"], tolerance=1e-3)


@states("figure-3-likeness", controls=EXCHANGED)
def likeness(config: Config, data: Any) -> lab.Relation:
    """From the second time on (GᵀG)^(-1/2) is more like (XᵀX)⁻¹ than with rows and columns shifted,
    by the cosine of traceless parts.
    """
    later = data["path"].isel(time=slice(1, None))
    return lab.ahead(later["likeness"], later["likeness_shifted"], least=0.05)


@states(("figure-3-not-diagonal", "section-2-not-diagonal"), controls=DIAGONALS, post_hoc=FIRST)
def not_diagonal(config: Config, data: Any) -> lab.Relation:
    """Neither preconditioner is diagonal from the second time on: more than 1 % of ‖P‖² lies off
    the diagonal, on average.
    """
    return lab.above(_share(data, "off").isel(time=slice(1, None)), SHARE, VISIBLE)


def figure(config: Config, data: Any) -> Figure:
    """Plot heat maps of both preconditioners for the first seed, in the middle and at the end."""
    drawn = Figure(figsize=(6, 5.2), layout="constrained")
    panels = drawn.subplots(2, 2, subplot_kw={"xticks": [], "yticks": []})
    times = (config.times[len(config.times) // 2], config.times[-1])
    places = [len(config.times) // 2, -1]
    first = data["path"]["p"].isel(seed=0, time=places)
    first = first.transpose("time", "preconditioner", "row", "column")
    for place, (time, (muon, scaled)) in enumerate(zip(times, first.values, strict=True)):
        shown = {"(GᵀG)^(-1/2)": muon, "(XᵀX)⁻¹": scaled}
        for axes, (label, values) in zip(panels[:, place], shown.items(), strict=True):
            image = axes.imshow(values / abs(values).max(), cmap="RdBu_r", vmin=-1, vmax=1)
            axes.set_title(f"{label}, t = {time}", fontsize="small")
    drawn.colorbar(image, ax=panels, label="entry / largest entry", shrink=0.6)
    return drawn


EXPERIMENT = lab.Experiment(
    "preconditioner-maps",
    runs.LEDGER,
    title="Muon's preconditioner beside that of ScaledGD",
    summary=(
        "Along a run of Muon the two matrices have similar patterns, and neither is diagonal, nor"
        " block-diagonal."
    ),
    config=Config,
    measure=run,
    statements=states,
    scales={
        "quick": {"seeds": 2250},
        "smoke": {"d": 6, "r": 3, "seeds": 24, "times": (1, 10, 50)},
        "paper": {"d": 50, "r": 10, "times": (1, 10, 50, 200, 400)},
    },
    figure=figure,
)
