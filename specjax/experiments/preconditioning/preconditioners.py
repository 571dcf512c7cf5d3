"""Figure 3 and Appendix A: Muon's preconditioner (GᵀG)^(-1/2) beside ScaledGD's (XᵀX)⁻¹ along a run of Muon."""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from matplotlib.figure import Figure

from specjax import spectral, sweep
from specjax.experiments.contract import Check, Data, Experiment, Table
from specjax.experiments.means import mean_of
from specjax.experiments.preconditioning import runs
from specjax.experiments.preconditioning.validation import check_count
from specjax.experiments.validation import check_root_seed
from specjax.experiments.verdicts import difference_check, equality_check
from specjax.models import factorization_spectra, matrix_factorization
from specjax.theory.preconditioning.conditions import check_condition_number, check_ranks

RATE = 0.23
CONSTANT = 0.3
"""c of eq. 83: an aligned start with |σ_i² - λ_i| = c σ_i for all i."""


@dataclass(frozen=True)
class Config:
    """Sizes, and the steps at which the preconditioners are compared."""

    d: int = field(default=20, metadata={"help": "rows of the factor"})
    r: int = field(default=5, metadata={"help": "rank of the target and columns of the factor"})
    kappa: float = field(default=10.0, metadata={"help": "condition number of the target"})
    start_scale: float = field(default=1e-3, metadata={"help": "scale of the start, small"})
    times: tuple[int, ...] = field(default=(1, 10, 50, 200), metadata={"help": "steps at which both are drawn"})
    seeds: int = field(default=30, metadata={"help": "targets and starts"})
    seed: int = field(default=0, metadata={"help": "seed of all draws"})

    def __post_init__(self) -> None:
        check_ranks(self.d, self.r, self.r)
        if self.r < 2:
            raise ValueError(f"r must be at least 2, for entries off the diagonal, got {self.r}.")
        check_condition_number(self.kappa)
        if not self.start_scale > 0:
            raise ValueError(
                f"start_scale must be positive, since X = 0 is a stationary point, got {self.start_scale}."
            )
        if not self.times or min(self.times) < 1 or any(np.diff(self.times) <= 0):
            raise ValueError(f"times needs different steps in ascending order from 1 up, got {self.times}.")
        check_count("seeds", self.seeds, 4)
        check_root_seed(self.seed)


def run(config: Config) -> Data:
    """Both preconditioners at each time, and the two steps where the condition of Appendix A holds exactly."""

    def measure(key: Array, kappa: Array) -> dict[str, Array]:
        posed = runs.factorization(key, kappa, config.d, config.r, config.r, config.start_scale)
        transform = runs.transformation("muon-plateau", key, jnp.full_like(kappa, RATE), posed)

        def advance(state, _):  # type: ignore[no-untyped-def]
            x, memory = runs.step(posed, transform, *state)
            return (x, memory), x

        _, path = jax.lax.scan(advance, (posed.start, transform.init(posed.start)), length=max(config.times))
        x = path[jnp.asarray(config.times) - 1]
        muon = jax.vmap(lambda x: _inverse_power(posed.gradient(x), 1 / 2))(x)
        scaled = jax.vmap(lambda x: _inverse_power(x, 1.0))(x)
        shuffled = jnp.roll(muon, 1, axis=(1, 2))
        return {
            "muon": muon,
            "scaled": scaled,
            "likeness": _likeness(muon, scaled),
            "control": _likeness(shuffled, scaled),
            "off_diagonal": 1 - jnp.sum(jnp.diagonal(muon, axis1=1, axis2=2) ** 2, -1) / jnp.sum(muon**2, (1, 2)),
        } | _appendix(key, kappa)

    def _appendix(key: Array, kappa: Array) -> dict[str, Array]:
        """Muon's and ScaledGD's directions where σ solves σ² - λ = c σ for every eigenvalue, and at σ twice as large."""
        keys = jax.random.split(key)
        spectrum = factorization_spectra.logarithmic_spectrum(config.r, kappa)
        at = factorization_spectra.target(keys[0], config.d, spectrum)
        frame = factorization_spectra.aligned_start(keys[1], at, config.r, 1.0).frame
        sigma = (CONSTANT + jnp.sqrt(CONSTANT**2 + 4 * spectrum)) / 2

        def gap(values: Array) -> Array:
            x = factorization_spectra.composed(at.basis, values, frame)
            gradient = matrix_factorization.gradient(x, at.matrix)
            scaled = gradient @ _inverse_power(x, 1.0)
            return jnp.linalg.norm(
                spectral.polar(gradient) - scaled * jnp.sqrt(float(config.r)) / jnp.linalg.norm(scaled)
            )

        return {"gap": gap(sigma), "gap_elsewhere": gap(2 * sigma)}

    with jax.enable_x64(True):
        over = {"kappa": sweep.values(config.kappa)}
        return {
            "path": sweep.run(measure, over, seeds=config.seeds, key=jax.random.key(config.seed), chunk=config.seeds)
        }


def _inverse_power(x: Array, power: float) -> Array:
    """(xᵀx)^(-power) of a matrix of full column rank."""
    _, s, vt = jnp.linalg.svd(x, full_matrices=False)
    return (vt.T * s[None, :] ** (-2 * power)) @ vt


def _likeness(a: Array, b: Array) -> Array:
    """The cosine of the angle between two matrices after their traceless parts are taken: 1 for equal patterns, 0 for unrelated ones."""

    def traceless(x: Array) -> Array:
        trace = jnp.trace(x, axis1=1, axis2=2)[:, None, None]
        return x - trace * jnp.eye(x.shape[-1])[None] / x.shape[-1]

    a, b = traceless(a), traceless(b)
    return jnp.sum(a * b, (1, 2)) / jnp.sqrt(jnp.sum(a**2, (1, 2)) * jnp.sum(b**2, (1, 2)))


def checks(config: Config, data: Data) -> list[Check]:
    """The identity of Appendix A, and whether the two preconditioners are alike along the run."""
    path = data["path"]
    likeness, control = (path[name].isel(kappa=0).values[:, 1:].mean(1) for name in ("likeness", "control"))
    difference = mean_of(likeness - control)
    off_diagonal = mean_of(path["off_diagonal"].mean(("kappa", "off_diagonal_dim_0")).values)
    return [
        equality_check(
            "appendix-a-identity",
            "preconditioning, Appendix A, eqs. 79 to 83",
            "Where |σ_i² - λ_i| = c σ_i for every i, Muon's step is ScaledGD's, up to its length.",
            error=path["gap"],
            control=path["gap_elsewhere"],
            tolerance=1e-10,
        ),
        difference_check(
            "figure-3-likeness",
            "preconditioning, Figure 3",
            "From the second time on (GᵀG)^(-1/2) is more like (XᵀX)⁻¹ than with its rows and columns shifted (cosine of the traceless "
            "parts, mean).",
            # Less alike than the control would be no evidence for the statement.
            difference=max(difference.mean, 0.0),
            stderr=difference.stderr,
            resolution=0.05,
        ),
        difference_check(
            "figure-3-not-diagonal",
            "preconditioning, Figure 3",
            "Muon's preconditioner is not diagonal: more than 1% of its squared norm lies off the diagonal, on average.",
            difference=off_diagonal.mean,
            stderr=off_diagonal.stderr,
            resolution=0.01,
        ),
    ]


def tables(config: Config, data: Data) -> list[Table]:
    """Likeness at each time: mean, standard error, and the control."""
    path = data["path"].isel(kappa=0)
    rows = []
    for index, time in enumerate(config.times):
        cells = []
        for name in ("likeness", "control", "off_diagonal"):
            mean, stderr = sweep.mean_and_stderr(path[name].isel({f"{name}_dim_0": index}))
            cells.append(f"{float(mean):.3f} ± {float(stderr):.3f}")
        rows.append((str(time), *cells))
    header = (
        "step",
        "cosine of the traceless parts",
        "the same, rows and columns shifted",
        "share of Muon's off the diagonal",
    )
    return [Table("(GᵀG)^(-1/2) against (XᵀX)⁻¹ along a run of Muon, mean ± standard error", header, tuple(rows))]


def plot(config: Config, data: Data) -> Figure:
    """Heat maps of both preconditioners, each divided by its largest entry, for the first seed."""
    figure = Figure(figsize=(2.6 * len(config.times) + 0.8, 5.4), layout="constrained")
    panels = figure.subplots(2, len(config.times), squeeze=False)
    first = data["path"].isel(kappa=0, seed=0)
    for index, time in enumerate(config.times):
        for axes, name, label in zip(panels[:, index], ("muon", "scaled"), ("(GᵀG)^(-1/2)", "(XᵀX)⁻¹"), strict=True):
            values = first[name].isel({f"{name}_dim_0": index}).values
            image = axes.imshow(values / np.max(np.abs(values)), cmap="RdBu_r", vmin=-1, vmax=1)
            axes.set_title(f"{label}, t = {time}", fontsize="medium")
            axes.set_xticks([])
            axes.set_yticks([])
    figure.colorbar(image, ax=panels, label="entry / largest entry", shrink=0.7)
    return figure


EXPERIMENT = Experiment(
    name="preconditioner-maps",
    paper="preconditioning",
    source="preconditioning, Figure 3 and Appendix A",
    title="Muon's preconditioner beside that of ScaledGD",
    summary=(
        "Where every |σ_i² - λ_i| is the same multiple of σ_i the two steps are the same. Along a run of Muon the two matrices have "
        "similar patterns, and neither is diagonal."
    ),
    scales={
        "smoke": Config(d=6, r=3, seeds=10, times=(1, 10, 50)),
        "quick": Config(),
        "paper": Config(d=50, r=10, seeds=100, times=(1, 10, 50, 200, 400)),
    },
    run=run,
    checks=checks,
    plot=plot,
    tables=tables,
)
