"""Lemmas 5 to 7, 10 to 15, 25 and 26: the averages of which the proofs of the three theorems are
made.

Each is compared with a mean over samples at small sizes, where the noise is below the nearest wrong
constant. The scalars of Lemmas 5 to 7, 13 and 14 are also compared with `specjax.moments`, at sizes
of up to 40.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from specjax import lab
from specjax.experiments.ledgers import ledger
from specjax.experiments.outer_product.lemma_forms import (
    CONDITIONAL,
    IDENTITY,
    KINK,
    WISHART,
    Dims,
    Formula,
    Scalars,
    form_of_squares,
    form_of_trace,
    pairings,
    scalars,
    wrong_scalars,
)
from specjax.experiments.outer_product.lemma_samples import (
    AFTER,
    ASYMMETRIC,
    BEFORE,
    D_IN,
    D_OUT,
    DEPTH,
    ENTRIES,
    LAYERS,
    TARGET,
    Config,
    Data,
    factors,
    given_pairs,
    given_weights,
    run,
)
from specjax.theory import deep_linear as theory
from specjax.theory import wishart

ROUNDING = 1e-12
states = lab.Statements()


def wishart_form(
    config: Config, data: Data, power: int, form: Formula | None = None
) -> xr.DataArray:
    """α I with α of the library, or another formula in d and k."""
    alpha = form or (lambda d, k: wishart.wishart_moments(d, k)[power - 1])
    return lab.closed_form(alpha, data["wishart"].d, data["wishart"].k) * IDENTITY


def power_lemma(power: int, shown: str, wrong: dict[str, Formula]) -> None:
    """That the mean of a power of the Wishart matrix is the printed multiple of the identity."""

    @states(
        f"lemma-{power + 4}",
        f"The mean of (U Uᵀ)^{power}, entry by entry, is {shown}, as printed.",
        name=f"lemma-{power + 4}",
        rivals={
            name: partial(wishart_form, power=power, form=form) for name, form in wrong.items()
        },
    )
    def _(config: Config, data: Data) -> lab.Relation:
        powers = data["wishart"]["powers"].sel(power=power, drop=True)
        return lab.equals(powers, wishart_form(config, data, power))


for power, (shown, wrong) in WISHART.items():
    power_lemma(power, shown, wrong)


def one_more(*names: str) -> dict[str, lab.Control]:
    """Controls with one of the drawn sizes one too large in the closed form."""
    return {
        f"{name} + 1 for {name}": lab.controls.replacing(
            name, partial(add, name=name, more=1), of="drawn"
        )
        for name in names
    }


def add(drawn: xr.Dataset, name: str, more: int) -> xr.DataArray:
    """Drawn sizes plus a number; or α_3 with another constant than 4, and the others as they
    are.
    """
    of_k = drawn["k"] * (drawn["power"] == 3) if name == "alphas" else 1
    return drawn[name] + more * of_k


@states(
    ("lemma-5", "lemma-6", "lemma-7"),
    controls=one_more("d", "k")
    | {
        f"{4 + more} for the 4 of α_3": lab.controls.replacing(
            "alphas", partial(add, name="alphas", more=more), of="drawn"
        )
        for more in (-1, 1)
    },
)
def wishart_exactly(config: Config, data: Data) -> lab.Relation:
    """α_1, α_2 and α_3 are the exact means of `specjax.moments` at all sizes that are drawn."""
    drawn = data["drawn"]
    alphas = wishart.wishart_moments(drawn.d.values, drawn.k.values)
    error = abs(np.stack([*map(np.asarray, alphas)], -1) / drawn["alphas"] - 1)
    return lab.zero_error(xr.DataArray(error, name="relative error"), tolerance=ROUNDING)


def asymmetric(config: Config, data: Data) -> Data:
    """The forms of a matrix that is not symmetric, as the lemmas need it to be."""
    forms = data["forms"]
    changed = {name: forms[f"asymmetric.{name}"] for name in ("squares", "trace")}
    return {**data, "forms": forms.assign(changed | {"matrix": (("p", "q"), ASYMMETRIC)})}


@states(
    "lemma-10",
    rivals={
        "m for m + 1": lambda config, data: form_of_squares(data, more=0),
        "m + 2 for m + 1": lambda config, data: form_of_squares(data, more=2),
        "without tr(M)²": lambda config, data: form_of_squares(data, trace=0.0),
        "2 tr(M)²": lambda config, data: form_of_squares(data, trace=2.0),
    },
    controls={"M that is not symmetric": asymmetric},
)
def lemma_10(config: Config, data: Data) -> lab.Relation:
    """For a symmetric M the means of (X M Xᵀ)² and (Yᵀ M Y)², with m rows in X and m columns in Y,
    are (tr(M)² + (m + 1) ‖M‖²) I, as printed.
    """
    return lab.equals(data["forms"]["squares"], form_of_squares(data))


@states(
    "lemma-11",
    rivals={
        "m ‖M‖²": lambda config, data: form_of_trace(data, times=1.0),
        "3 m ‖M‖²": lambda config, data: form_of_trace(data, times=3.0),
        "m tr(M)²": lambda config, data: form_of_trace(data, power=1),
    },
    controls={"M that is not symmetric": asymmetric},
)
def lemma_11(config: Config, data: Data) -> lab.Relation:
    """For a symmetric M and m rows in X the mean of tr(X M Xᵀ)² is m² tr(M)² + 2 m ‖M‖², as
    printed.
    """
    return lab.equals(data["forms"]["trace"], form_of_trace(data))


def conditional(config: Config, data: Data, formula: str = "(31)") -> xr.DataArray:
    """Lemma 12, or a wrong formula, at the given weights of every width."""

    def entries(w: int) -> np.ndarray:
        weights = [np.asarray(weight, np.float64) for weight in given_weights(config, w)]
        product = factors(weights, np.eye(D_IN), np.eye(D_OUT))
        means = [CONDITIONAL[formula](product[f"A_{i}"], product[f"B_{i}"]) for i in LAYERS]
        return np.stack([mean[:2, :2] for mean in means])

    w = data["networks"].w
    values = np.stack([entries(int(width)) for width in w.values])
    return xr.DataArray(values, {"w": w, "layer": list(LAYERS)}, ("w", "layer", *ENTRIES))


@states(
    "lemma-12",
    rivals={name: partial(conditional, formula=name) for name in CONDITIONAL if name != "(31)"},
)
def lemma_12(config: Config, data: Data) -> lab.Relation:
    """Given the other weights, the mean of G_i G_iᵀ over W_i is (31) in every layer."""
    return lab.equals(data["networks"]["conditional"], conditional(config, data))


def scalar_form(
    config: Config,
    data: Data,
    names: tuple[str, ...],
    place: int,
    form: Callable[[Dims], Scalars] = scalars,
) -> xr.DataArray:
    """r_i I or s_i I (place 0), or v_i or u_i (place 1), of the factors in `names`."""
    values = [
        lab.closed_form(
            lambda w, name=name: form((D_IN, 2 * w, w, D_OUT))[name][place] + 0 * w,
            data["networks"].w,
        )
        for name in names
    ]
    found = xr.concat(values, "factor").assign_coords(factor=list(names))
    return found if place else found * IDENTITY


def scalar_lemma(lemma: str, names: tuple[str, ...], gram: str, shown: tuple[str, str]) -> None:
    """That the mean of the square of a factor's F Fᵀ, and of its squared trace, are as printed."""
    wrong: dict[str, dict[str, int]] = {
        "d for d + 1": {"more": 0},
        "d + 2 for d + 1": {"more": 2},
        "without the square of the trace": {"trace": 0},
    }
    of_trace = {"1 for 2": {"times": 1}, "3 for 2": {"times": 3}}

    def judge(place: int, variable: str, wrong: dict[str, dict[str, int]]) -> None:
        form = partial(scalar_form, names=names, place=place)

        @states(
            lemma,
            f"The mean of {('the square', 'the squared trace')[place]} of {gram} is {shown[place]},"
            " as printed, for every factor.",
            name=f"{lemma}-{variable}",
            rivals={
                f"{name} in the recursion": partial(form, form=partial(wrong_scalars, wrong=change))
                for name, change in wrong.items()
            },
        )
        def _(config: Config, data: Data) -> lab.Relation:
            found = data["networks"][variable].sel(factor=list(names))
            return lab.equals(found, form(config, data))

    judge(0, "squares", wrong)
    judge(1, "traces", wrong | of_trace)


scalar_lemma("lemma-13", BEFORE, "B_i B_iᵀ", ("r_i I", "v_i"))
scalar_lemma("lemma-14", AFTER, "A_iᵀ A_i", ("s_i I", "u_i"))


@states(("lemma-13", "lemma-14", "eq-25"), controls=one_more(*(f"d{i}" for i in range(DEPTH + 1))))
def scalars_exactly(config: Config, data: Data) -> lab.Relation:
    """In networks of four layers V_i = d_{i-1} r_i and v_i, d_i s_i and u_i are the exact means of
    `specjax.moments` at all sizes that are drawn.
    """
    drawn = data["drawn"]
    dims = [drawn[f"d{i}"].values for i in range(DEPTH + 1)]
    found = scalars(dims)
    norms, traces = [], []
    for name in drawn.factor.values:
        rows = dims[int(name[2:]) - name.startswith("B")]
        norms.append(rows * np.asarray(found[name][0]))
        traces.append(np.broadcast_to(found[name][1], rows.shape))
    error = abs(
        np.stack([norms, traces]) / xr.concat([drawn["norms"], drawn["traces"]], "mean") - 1
    )
    return lab.zero_error(xr.DataArray(error, name="relative error"), tolerance=ROUNDING)


def target_coefficient(dims: Dims, layer: int) -> Any:
    # By name at each call, so that an attack on the library's formula reaches it.
    return theory.target_coefficient(dims, layer)


def signal(
    config: Config,
    data: Data,
    coefficient: Callable[[Dims, int], Any] = target_coefficient,
    output: np.ndarray = TARGET @ TARGET.T,
) -> xr.DataArray:
    """T_i, or the matrix with another coefficient or another one in the last layer."""

    def entries(layer: int) -> xr.DataArray:
        matrix = np.sum(TARGET**2) * np.eye(2) if layer < len(LAYERS) else output
        of_width = lab.closed_form(
            lambda w: coefficient((D_IN, 2 * w, w, D_OUT), layer) + 0 * w, data["networks"].w
        )
        return of_width * xr.DataArray(matrix, dims=ENTRIES)

    return xr.concat([entries(layer) for layer in LAYERS], "layer").assign_coords(
        layer=list(LAYERS)
    )


@states(
    "lemma-15",
    rivals={
        "the width of layer i in the product": partial(
            signal, coefficient=lambda dims, layer: math.prod(dims[1:-1])
        ),
        "d_0 in the product": partial(
            signal, coefficient=lambda dims, layer: dims[0] * target_coefficient(dims, layer)
        ),
        "‖Φ‖² I in the last layer": partial(signal, output=np.sum(TARGET**2) * np.eye(2)),
        "the entries of Φ Φᵀ squared": partial(signal, output=(TARGET @ TARGET.T) ** 2),
    },
)
def lemma_15(config: Config, data: Data) -> lab.Relation:
    """The mean of A_iᵀ Φ B_iᵀ B_i Φᵀ A_i is T_i of (26), entry by entry in every layer."""
    return lab.equals(data["networks"]["signal"], signal(config, data))


def kink(config: Config, data: Data, formula: str = "(49)", *, along: bool = False) -> xr.DataArray:
    """F(u, v) of the pairs, those in one direction if `along`, else the others."""

    def value(u: np.ndarray, v: np.ndarray) -> np.ndarray:
        lengths = np.sqrt(u @ u), np.sqrt(v @ v)
        theta = np.arccos(np.clip(u @ v / (lengths[0] * lengths[1]), -1, 1))
        return KINK[formula](u, v, lengths[1] / lengths[0], theta)[:2]

    kinks = data["kinks"]
    values = np.stack(
        [
            [value(*pair) for pair in np.asarray(given_pairs(config, int(d0)), np.float64)]
            for d0 in kinks.d0.values
        ]
    )
    found = xr.DataArray(values, {"d0": kinks.d0, "pair": kinks.pair}, ("d0", "pair", "entry"))
    return found.sel(pair=pairs(data, along=along))


def pairs(data: Data, *, along: bool) -> list[str]:
    return [name for name in data["kinks"].pair.values if (name == "u, 2u") == along]


@states(
    "lemma-25",
    rivals={name: partial(kink, formula=name) for name in KINK if name != "(49)"},
)
def lemma_25(config: Config, data: Data) -> lab.Relation:
    """F(u, v) is (49) for independent u and v, in every entry, and u/2 for u = v."""
    return lab.equals(data["kinks"]["f"].sel(pair=pairs(data, along=False)), kink(config, data))


@states(
    "lemma-25",
    rivals={name: partial(kink, formula=name, along=True) for name in ("u/2", "v", "θ for π - θ")},
)
def lemma_25_in_one_direction(config: Config, data: Data) -> lab.Relation:
    """The formula (49) is also right where Lemma 25 does not state it, at v = 2u, where it is
    v/2.
    """
    return lab.equals(
        data["kinks"]["f"].sel(pair=pairs(data, along=True)), kink(config, data, along=True)
    )


@states(
    "lemma-26",
    rivals={
        "d₂ for d₂²": lambda config, data: pairings(data, power=1),
        "without δ_ac δ_kl": lambda config, data: pairings(data, straight=0.0),
        "without δ_al δ_ck": lambda config, data: pairings(data, across=0.0),
        "twice δ_al δ_ck": lambda config, data: pairings(data, across=2.0),
    },
)
def lemma_26(config: Config, data: Data) -> lab.Relation:
    """The mean of (W₂ᵀW₂)_ak (W₂ᵀW₂)_cl is d₂² δ_ak δ_cl + d₂ δ_ac δ_kl + d₂ δ_al δ_ck, as printed,
    for indices of every kind.
    """
    return lab.equals(data["products"]["products"], pairings(data))


EXPERIMENT = lab.Experiment(
    "outer-product-lemmas",
    ledger("outer-product"),
    title="The lemmas behind the three theorems",
    summary=(
        "The averages of which the proofs are made have the printed constants; the nearest wrong"
        " ones are excluded."
    ),
    config=Config,
    measure=run,
    statements=states,
    figure=("lemma-7", "lemma-11", "lemma-14-traces", "lemma-26"),
    scales={
        "quick": {"seeds": 105_000},
        "smoke": {"sizes": (2, 3), "seeds": 20_000, "drawn": 20},
        "paper": {"seeds": 2_000_000},
    },
)
