"""The checks of the experiment on condition numbers: slopes, who wins at κ = 1, and which variants of Muon stay flat."""

import jax
import numpy as np
import xarray as xr

from specjax.experiments.contract import Check, Data
from specjax.experiments.preconditioning.condition_number_config import PROBLEMS, Config, by_optimizer
from specjax.experiments.preconditioning.slopes import arrived, slope, tuned
from specjax.experiments.verdicts import band_check, bound_check
from specjax.theory.preconditioning import iterations

VARIANTS = {
    "muon-plateau": "the plateau schedule and no momentum",
    "muon-momentum": "momentum 0.9",
    "muon-newton-schulz": "five Newton-Schulz steps for the polar factor",
}
"""What is run in place of simplified Muon."""


def context_gradient_descent(config: Config) -> xr.DataArray:
    """The exact iterations of gradient descent in context at all of `context_kappas` but 1; two equal seeds, since nothing is drawn."""
    kappas = np.asarray(config.context_kappas[1:])
    with jax.enable_x64(True):
        steps = np.ceil(np.asarray(iterations.gradient_descent_regression(kappas, config.accuracy)))
    return xr.DataArray(np.stack([steps, steps], 1), {"kappa": kappas, "seed": [0, 1]}, ("kappa", "seed"))


def checks(config: Config, data: Data) -> list[Check]:
    """Slopes of Muon, gradient descent and the rest; who wins at κ = 1; and whether momentum and Newton-Schulz leave it flat."""
    measured = by_optimizer(config, data)
    top, context_top = f"{config.kappas[-1]:g}", f"{config.context_kappas[-1]:g}"
    results = [
        band_check(
            "factorization-muon-slope",
            "preconditioning, Theorem 1",
            f"Simplified Muon's iterations on a factorization do not depend on κ from 10 to {top}: slope 0 within 0.05.",
            fit=slope(tuned(measured["factorization-muon"]), 10),
            low=-0.05,
            high=0.05,
        ),
        band_check(
            "context-muon-slope",
            "preconditioning, Theorem 3",
            f"Simplified Muon's iterations in context do not depend on κ from 10 to {context_top}: slope 0 within 0.05.",
            fit=slope(tuned(measured["context-muon"]), 10),
            low=-0.05,
            high=0.05,
        ),
        *_arrivals(measured),
        band_check(
            "factorization-gradient-descent-slope",
            "preconditioning, eq. 10",
            f"Gradient descent on a factorization needs iterations of order κ, up to a logarithm, from 10 to {top}: slope 0.9 to 1.05.",
            fit=slope(data["aligned"]["steps"], 10),
            low=0.9,
            high=1.05,
        ),
        _flow_check(data["aligned"]),
        band_check(
            "context-gradient-descent-slope",
            "preconditioning, eq. 21",
            f"Gradient descent in context needs iterations of order κ³ from 10 to {context_top}: slope 3 within 0.05.",
            fit=slope(context_gradient_descent(config), 10),
            low=2.95,
            high=3.05,
        ),
        _closed_form_check(config, measured["context-gradient-descent"]),
        *_wins_at_one(measured),
        *_growth(measured),
    ]
    for problem, largest in (("factorization", top), ("context", context_top)):
        for name, what in VARIANTS.items():
            if f"{problem}-{name}" in measured:
                results.append(_survives(problem, name, what, largest, tuned(measured[f"{problem}-{name}"])))
    if "factorization-scaled" in measured:
        results.append(
            band_check(
                "factorization-scaled-slope",
                "preconditioning, Appendix A (Tong et al. 2021)",
                f"ScaledGD's iterations on a factorization with k = r do not grow with κ from 10 to {top}: slope below 0.05.",
                fit=slope(tuned(measured["factorization-scaled"]), 10),
                low=-np.inf,
                high=0.05,
            )
        )
    return results


def _survives(problem: str, name: str, what: str, largest: str, steps: xr.DataArray) -> Check:
    """Whether a variant of Muon needs at most twice the steps of the smallest κ from 10 up wherever κ is larger."""
    return bound_check(
        f"{problem}-{name}-survives",
        "preconditioning, Section 2 [ours]",
        f"Muon with {what} needs at most twice the steps of the smallest κ from 10 up at any other, up to {largest} ({PROBLEMS[problem]}).",
        smallest_margin=2 - max(_increase(steps, 10)),
    )


def _increase(steps: xr.DataArray, least: int) -> list[float]:
    """Medians over seeds at all κ from `least` up in units of the first; runs that did not arrive count with the limit."""
    medians = steps.sel(kappa=steps["kappa"].values >= least).median("seed").values
    return [float(median / medians[0]) for median in medians]


def _arrivals(measured: Data) -> list[Check]:
    return [
        bound_check(
            f"{problem}-muon-arrives",
            f"preconditioning, Theorem {theorem}",
            f"Simplified Muon reaches the accuracy at every κ and from every start, with some step size ({PROBLEMS[problem]}).",
            smallest_margin=float(arrived(measured[f"{problem}-muon"]).min()) - 1,
        )
        for problem, theorem in (("factorization", 1), ("context", 3))
    ]


def _flow_check(aligned: xr.Dataset) -> Check:
    """The flow is the limit of small rate · λ, so it is asked for where κ is largest, and to one part in a thousand."""
    last = aligned.isel(kappa=-1)
    error = float(np.abs(last["steps"] / last["flow"] - 1).max())
    return bound_check(
        "factorization-gradient-descent-flow",
        "preconditioning, eq. 10 [closed form ours]",
        "Gradient descent takes [log((λ - ε)/ε) - log(x_0²/(λ - x_0²))] / (2 η λ) steps at the smallest eigenvalue λ, to 0.1% at the "
        "largest κ.",
        smallest_margin=1e-3 - error,
    )


def _closed_form_check(config: Config, context: xr.Dataset) -> Check:
    kappas = context["kappa"].values[1:]
    with jax.enable_x64(True):
        predicted = np.ceil(np.asarray(iterations.gradient_descent_regression(kappas, config.accuracy)))
    measured = context["steps"].sel(rate=1.0, kappa=kappas).values
    # The error that is measured is the Frobenius norm, a little above the operator norm of the formula.
    return bound_check(
        "context-gradient-descent-closed-form",
        "preconditioning, eq. 21 [closed form ours]",
        "Gradient descent with step size 1/λ_1³ takes log ε / log(1 - κ⁻³) steps in context, to within one step.",
        smallest_margin=1 - float(np.max(np.abs(measured - predicted[:, None]))),
    )


def _wins_at_one(measured: Data) -> list[Check]:
    results = []
    for problem in ("factorization", "context"):
        muon, descent = (tuned(measured[f"{problem}-{name}"]).sel(kappa=1.0) for name in ("muon", "gradient-descent"))
        results.append(
            bound_check(
                f"{problem}-gradient-descent-wins-at-one",
                "preconditioning, Section 2 [ours]",
                f"At κ = 1 tuned gradient descent needs fewer iterations than tuned Muon, in every draw ({PROBLEMS[problem]}).",
                smallest_margin=float((muon - descent).min()) - 1,
            )
        )
    return results


def _growth(measured: Data) -> list[Check]:
    """What depends on κ: the optimizers that work entry by entry, and Muon on a matrix regression."""
    pairs = (
        ("factorization", "sign", "SignGD"),
        ("factorization", "adam", "Adam"),
        ("context", "sign", "SignGD"),
    )
    results = [
        bound_check(
            f"{problem}-{name}-grows",
            f"preconditioning, Section 2.{'1' if problem == 'factorization' else '2'}",
            f"Tuned {who} needs more than twice the iterations at the largest κ than at the smallest above 1, from a generic start "
            f"({PROBLEMS[problem]}).",
            smallest_margin=_increase(tuned(measured[f"{problem}-{name}"]), 2)[-1] - 2,
        )
        for problem, name, who in pairs
        if f"{problem}-{name}" in measured
    ]
    results.append(
        band_check(
            "regression-muon-grows",
            "preconditioning, Section 5 [ours]",
            "On a matrix regression Muon's iterations with the plateau schedule do grow with κ: slope above 0.05.",
            fit=slope(tuned(measured["regression-muon-plateau"]), 10),
            low=0.05,
        )
    )
    results.append(
        band_check(
            "regression-muon-below-gradient-descent",
            "preconditioning, Section 5 [ours]",
            "On a matrix regression they grow more slowly than κ: slope below 0.9.",
            fit=slope(tuned(measured["regression-muon-plateau"]), 10),
            low=-np.inf,
            high=0.9,
        )
    )
    return results
