"""Table C.7: E[G Gᵀ] of the two-layer ReLU network by the gradient that is exact in x, by autodiff of a sampled loss, and by the paper.

The paper averages Ĝ Ĝᵀ of batch gradients Ĝ. That adds the covariance of Ĝ to the expectation, in all four rows of its table, by an
amount that has a closed form; the product of the gradients of two half batches does not.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Key

from specjax import lab, sizes, sweep
from specjax.experiments.ledgers import ledger
from specjax.experiments.outer_product.statistics import (
    QUANTITIES,
    ROWS,
    autodiff_deviations,
    by_row,
    closed_forms,
    controlled_relu_statistics,
    relu_statistics,
)
from specjax.experiments.outer_product.statistics import batch_bias as bias_of
from specjax.models import relu_network
from specjax.models.targets import linear_target
from specjax.theory import relu_network as theory

D0, D1, D2 = 25, 20, 12
NORM_SQUARED = 3211.10
"""‖Φ‖_F² of the paper's target, all of it that the expectations depend on; its entries are not printed."""
PAPER_INITS, PAPER_SAMPLES = 4000, 8000
Rival = Callable[[Any, Any], xr.DataArray]


PAPER_SIMULATION = by_row(11541.18, 4.50, 2372.19, 24.64)
PAPER_THEORY = by_row(11549.25, 5.00, 2364.78, 23.38)


class Config(lab.Config):
    """Costs of the table, whose sizes are the paper's."""

    inits: int = lab.seeds(40_000, help="initializations of the exact estimator")
    sampled_inits: int = lab.seeds(4000, help="initializations of the sampled estimator")
    samples: int = lab.integer(200, least=2, help="inputs x per initialization of the sampled estimator, even")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.samples % 2:
            raise ValueError(f"samples must be even, for two half batches, got {self.samples}.")


states = lab.Statements()


def run(config: Config, key: Key[Array, ""]) -> dict[str, xr.Dataset]:
    """The four rows by the exact gradient, and how far those by autodiff of a batch are from it on the same weights."""
    phi = linear_target(sizes.stream(key, "target"), D2, D0)
    phi = phi * jnp.sqrt(NORM_SQUARED / jnp.sum(phi**2))

    def exact(key: Key[Array, ""], d0: int) -> dict[str, dict[str, Array]]:
        params = relu_network.init(key, d0, D1, D2)
        gradient = relu_network.gradient(params, phi)
        return {
            "plain": relu_statistics(gradient, phi, D1, D2),
            "controlled": controlled_relu_statistics(params, gradient, phi, D1, D2),
        }

    def sampled(key: Key[Array, ""], d0: int) -> dict[str, dict[str, Array]]:
        params = relu_network.init(sizes.stream(key, "weights"), d0, D1, D2)
        x = sizes.normal(sizes.stream(key, "inputs"), (config.samples, d0))
        return autodiff_deviations(params, phi, x, D1, D2)

    over = {"d0": sweep.widths(D0)}
    return {
        "exact": sweep.run(exact, over, seeds=config.inits, key=sizes.stream(key, "weights")),
        "sampled": sweep.run(sampled, over, seeds=config.sampled_inits, key=sizes.stream(key, "batches")),
    }


def rows(data: xr.Dataset, kind: str) -> xr.DataArray:
    """The four rows of one kind, per seed."""
    return data[[f"{kind}.{q}" for q in ROWS]].isel(d0=0, drop=True).to_dataarray("row", kind).assign_coords(row=ROWS)


def closed() -> xr.DataArray:
    """The closed forms of the table."""
    return closed_forms(D0, D1, D2, NORM_SQUARED)


def bias(samples: int) -> xr.DataArray:
    """What a batch of so many inputs adds to them."""
    return bias_of(D0, D1, D2, NORM_SQUARED, samples)


def reported(data: dict[str, xr.Dataset]) -> xr.DataArray:
    """The paper's simulation as draws: their mean is what it printed, and their standard error that of its 4000 initializations.

    It printed no spread; here it is that of the exact gradient.
    """
    draws = rows(data["exact"], "plain")
    spread = (draws - draws.mean("seed")) * np.sqrt(draws.sizes["seed"] / PAPER_INITS)
    return (PAPER_SIMULATION + spread).rename("the paper's simulation")


def _only(row: str, form: xr.DataArray, other: xr.DataArray | float | int) -> xr.DataArray:
    """`form` in one row, `other` in the others."""
    return form.where(form["row"] == row, other)


def _each_row(what: str, rival: Callable[[Config, str], xr.DataArray]) -> dict[str, Rival]:
    """A rival for each row, in which that row is another than predicted."""

    def of(row: str) -> Rival:
        return lambda config, data: rival(config, row)

    return {f"{what} {label}": of(row) for row, label in QUANTITIES.items()}


def _halved(form: xr.DataArray, row: str) -> xr.DataArray:
    return _only(row, form / 2, form)


_THEOREM = ROWS[:3]
_LEFT_OUT: dict[str, Callable[[], xr.DataArray]] = {
    "G₂ without Φ": lambda: by_row(D1 / 4 * NORM_SQUARED / D2, 0, 0, 0),
    "G₂ without the norms of single units": lambda: by_row(D1 * D0 * (D0 + 2) / 4, 0, 0, 0),
    "one hidden unit less in ĉ": lambda: by_row(0, 1 / 4, 0, 0),
    "G₁ without Φ": lambda: by_row(0, 0, NORM_SQUARED / 4, 0),
    "G₁ without d₀ d₂²/4": lambda: by_row(0, 0, D0 * D2**2 / 4, 0),
    "G₁ without d₀ d₂/2": lambda: by_row(0, 0, D0 * D2 / 2, 0),
    "G₁ with d₁ κ₁ for (d₁ - 1) κ₁": lambda: by_row(0, 0, -D0 * D2 * float(theory.kappa_1(D0)), 0),
}


def _without(part: Callable[[], xr.DataArray]) -> Rival:
    return lambda config, data: (closed() - part()).sel(row=_THEOREM)


@states(
    ("theorem-3", "eq-39"),
    "At the paper's sizes both rows of G₂ and the diagonal of G₁ are those of Theorem 3.",
    rivals={name: _without(part) for name, part in _LEFT_OUT.items()},
)
def closed_form(config: Config, data: dict[str, xr.Dataset]) -> lab.Relation:
    """By the gradient that is exact in x."""
    return lab.equals(rows(data["exact"], "controlled").sel(row=_THEOREM), closed().sel(row=_THEOREM))


@states(
    ("eq-40", "table-c7-theory"),
    "At the paper's sizes the off-diagonal of E[G₁G₁ᵀ] is d₀ d₂/4π.",
    corrected=True,
    rivals={"d₀ d₂ κ₂": lambda config, data: float(theory.off_diagonal_1_as_printed(D0, D2))},
)
def off_diagonal(config: Config, data: dict[str, xr.Dataset]) -> lab.Relation:
    """23.873 against 23.381."""
    draws = rows(data["exact"], "controlled").sel(row="g1_off_diagonal", drop=True)
    return lab.equals(draws.rename("off-diagonal"), float(theory.off_diagonal_1(D0, D2)))


@states(
    "table-c7-theory",
    "The four numbers in the table's column of theory are the expectations.",
    holds=False,
    rivals={"the closed forms": lambda config, data: closed()},
)
def theory_column(config: Config, data: dict[str, xr.Dataset]) -> lab.Relation:
    """The last one is a leading term."""
    return lab.equals(rows(data["exact"], "controlled"), PAPER_THEORY)


@states(
    "appendix-c7",
    "The average of ĜĜᵀ over batch gradients by autodiff has the expectations of GGᵀ that the table sets beside it.",
    holds=False,
    rivals={"the covariance of the batch gradient": lambda config, data: bias(config.samples)},
)
def no_batch_bias(config: Config, data: dict[str, xr.Dataset]) -> lab.Relation:
    """On the same weights as the exact gradient."""
    return lab.equals(rows(data["sampled"], "batch").rename("batch less exact"), 0.0)


@states(
    ("appendix-c7", "table-c7"),
    "A batch adds the covariance of its gradient to all four rows, by the closed form: told by the distance from the exact gradient, and "
    "by half the difference of the gradients of two half batches.",
    corrected=True,
    rivals=_each_row("no bias of the", lambda config, row: _only(row, by_row(0, 0, 0, 0), bias(config.samples)))
    | {
        "the second moment, from which no GGᵀ is subtracted": lambda config, data: (
            bias(config.samples) + closed() / config.samples
        ),
        "as many inputs as a half batch has": lambda config, data: bias(config.samples // 2),
        "d₂² for d₂(d₂ + 1) in G₁": lambda config, data: (
            bias(config.samples) - by_row(0, 0, D2 / 2, D2 / (2 * np.pi)) * D0 * (D0 + 2) / config.samples
        ),
        "d₁² for d₁(d₁ + 5) in G₂": lambda config, data: (
            bias(config.samples) - by_row(D0 * (D0 + 2) * 5 * D1 / 4, 0, 0, 0) / config.samples
        ),
    },
)
def batch_bias(config: Config, data: dict[str, xr.Dataset]) -> lab.Relation:
    """The prediction has no part in the data: it is an average over inputs and weights in closed form."""
    told = {"batch less exact": rows(data["sampled"], "batch"), "half difference": rows(data["sampled"], "noise")}
    draws = xr.concat(list(told.values()), xr.DataArray(list(told), dims="by")).transpose("row", "by", "seed")
    return lab.equals(draws.rename("bias of the batch"), bias(config.samples))


@states(
    "appendix-c7",
    "By autodiff, without kernel formulas, the product of the gradients of two half batches has the expectations of GGᵀ in all four rows.",
    corrected=True,
    rivals=_each_row("the bias of a batch in the", lambda config, row: _only(row, bias(config.samples), 0.0)),
)
def half_batches(config: Config, data: dict[str, xr.Dataset]) -> lab.Relation:
    """On the same weights as the exact gradient."""
    return lab.equals(rows(data["sampled"], "halves").rename("half × half less exact"), 0.0)


@states(
    (
        "table-c7",
        "table-c7-g2-diagonal",
        "table-c7-g2-off-diagonal",
        "table-c7-g1-diagonal",
        "table-c7-g1-off-diagonal",
    ),
    "The paper's simulation agrees with its theory in all four rows, and not with the closed forms and the bias of its 8000 inputs.",
    holds=None,
    rivals=_each_row("half the", lambda config, row: _halved(PAPER_THEORY, row))
    | {"closed forms and bias": lambda config, data: closed() + bias(PAPER_SAMPLES)},
)
def paper_simulation(config: Config, data: dict[str, xr.Dataset]) -> lab.Relation:
    """The comparison of the table, with the standard errors that it lacks: its numbers cannot tell the two readings apart."""
    return lab.equals(reported(data), PAPER_THEORY)


@states(
    "table-c7",
    "The paper's simulation agrees with the closed forms and the bias of its 8000 inputs in all four rows, and not with its theory.",
    corrected=True,
    holds=None,
    rivals=_each_row("half the", lambda config, row: _halved(closed() + bias(PAPER_SAMPLES), row))
    | {
        "200 inputs": lambda config, data: closed() + bias(200),
        "the paper's theory": lambda config, data: PAPER_THEORY,
    },
)
def paper_simulation_with_bias(config: Config, data: dict[str, xr.Dataset]) -> lab.Relation:
    """What its estimator converges to."""
    return lab.equals(reported(data), closed() + bias(PAPER_SAMPLES))


def tables(config: Config, data: dict[str, xr.Dataset]) -> list[lab.Table]:
    """The paper's table with standard errors, and what a batch adds."""
    ours, paper, added = rows(data["exact"], "controlled"), reported(data), bias(config.samples)
    expected, of_paper = closed(), bias(PAPER_SAMPLES)

    def line(row: str) -> tuple[str, ...]:
        cells = (expected, PAPER_THEORY, expected + of_paper)
        return (
            QUANTITIES[row],
            *(f"{float(cell.sel(row=row)):.2f}" for cell in cells),
            _with_error(ours.sel(row=row)),
            _with_error(paper.sel(row=row)),
        )

    def addition(row: str) -> tuple[str, ...]:
        kinds = (rows(data["sampled"], kind).sel(row=row) for kind in ("batch", "noise", "halves"))
        return (QUANTITIES[row], f"{float(added.sel(row=row)):.4g}", *map(_with_error, kinds))

    return [
        lab.Table(
            f"Table C.7: d₀ = {D0}, d₁ = {D1}, d₂ = {D2}, ± one standard error",
            ("", "closed form", "paper's theory", "with 8000 inputs", "exact in x", "paper's simulation"),
            tuple(map(line, ROWS)),
        ),
        lab.Table(
            f"What a batch of {config.samples} inputs adds, by autodiff",
            ("", "closed form", "batch less exact", "half difference", "half × half less exact"),
            tuple(map(addition, ROWS)),
        ),
    ]


def _with_error(values: xr.DataArray) -> str:
    mean, stderr = sweep.mean_and_stderr(values)
    return f"{float(mean):.5g} ± {float(stderr):.2g}"


EXPERIMENT = lab.Experiment(
    "table-c7",
    ledger("outer-product"),
    title="E[G Gᵀ] of a two-layer ReLU network: the paper's table, with errors",
    summary="The paper checks its closed forms by autodiff on sampled inputs, without standard errors. Its simulation agrees with its "
    "theory within the noise of 4000 initializations. That noise is too large to see that the theory's last number is a leading term, and "
    "that a batch adds the covariance of its gradient to every row: 9 % of the off-diagonal of G₁ at 8000 inputs. An estimator that "
    "averages over inputs exactly, with a control variate, sees both.",
    config=Config,
    measure=run,
    statements=states,
    scales={
        "smoke": {"inits": 1000, "sampled_inits": 200, "samples": 40},
        "paper": {"inits": 1_000_000, "sampled_inits": 4000, "samples": 8000},
    },
    tables=tables,
)
