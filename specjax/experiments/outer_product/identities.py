"""Lemmas 1 to 4 and 16 to 24, Remark 2 and eqs. 6, 20, 47 and 52: what the proofs take as known.

Means over samples are compared with the printed formulas and with the nearest wrong ones, and
gradients with derivatives of the loss. All sizes and rivals were chosen before the first run.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from specjax import lab
from specjax.experiments.ledgers import ledger
from specjax.experiments.outer_product.identity_samples import (
    FUNCTIONS,
    POWERS,
    PRODUCTS,
    Config,
    Data,
    U,
    V,
    covariance,
    pair_places,
    run,
)
from specjax.experiments.outer_product.lemma_forms import IDENTITY
from specjax.experiments.outer_product.lemma_samples import ASYMMETRIC, ENTRIES, TARGET
from specjax.theory import relu_network as theory
from specjax.theory import wishart

ROUNDING = 1e-12
FREE = 0.25
"""Exponents of d₀ up to which a part counts as O(1): half of the 1/2 that eq. 52 allows."""
UNIT, COSINE = U / np.linalg.norm(U), float(U @ V / np.sqrt((U @ U) * (V @ V)))
states = lab.Statements()


@states(
    ("lemma-1", "lemma-8", "lemma-16"),
    rivals={
        "‖M‖ for tr(M)": lambda config, data: np.linalg.norm(ASYMMETRIC) * IDENTITY,
        "m tr(M)/3": lambda config, data: data["forms"].m * np.trace(ASYMMETRIC) / 3 * IDENTITY,
        "a corner of M": lambda config, data: xr.DataArray(ASYMMETRIC[:2, :2], dims=ENTRIES),
    },
)
def lemma_1(config: Config, data: Data) -> lab.Relation:
    """For a matrix M of any kind the means of X M Xᵀ and Yᵀ M Y are tr(M) I, as printed."""
    return lab.equals(data["forms"]["forms"], np.trace(ASYMMETRIC) * IDENTITY)


def traces(d: Any, k: Any) -> dict[int, Any]:
    """E[tr W^m] of Lemmas 6 and 7, and for m = 4; a test compares it with `specjax.moments`."""
    _, second, third = wishart.wishart_moments(d, k)
    of_squares = (6 * d**2 + 17 * d + 21) * k + d**3 + 6 * d**2 + 21 * d + 20
    fourth = k * (k**3 + 6 * (d + 1) * k**2 + of_squares)
    return {2: d * np.asarray(second), 3: d * np.asarray(third), 4: d * fourth}


def trace_over_d(d: Any, k: Any, power: int) -> Any:
    return traces(d, k)[power] / d


def mean_power(data: Data, multiple: Callable[..., Any] = trace_over_d) -> xr.DataArray:
    """E[tr W^m]/d times the identity, or another multiple of it."""
    powers = data["powers"]
    values = [
        lab.closed_form(partial(multiple, power=power), powers.d, powers.k) for power in POWERS
    ]
    return xr.concat(values, "power").assign_coords(power=list(POWERS)) * IDENTITY


@states(
    "lemma-2",
    rivals={
        "the power of the mean": lambda config, data: mean_power(
            data, lambda d, k, power: k**power + 0 * d
        ),
        "E[tr W^m]/k": lambda config, data: mean_power(
            data, lambda d, k, power: traces(d, k)[power] / k
        ),
        "E[tr W^m]/(d + 1)": lambda config, data: mean_power(
            data, lambda d, k, power: traces(d, k)[power] / (d + 1)
        ),
    },
)
def lemma_2(config: Config, data: Data) -> lab.Relation:
    """For m from 2 to 4 the mean of (U Uᵀ)^m, entry by entry, is E[tr (U Uᵀ)^m]/d times the
    identity.
    """
    return lab.equals(data["powers"]["powers"], mean_power(data))


def wick(data: Data, left_out: int = 0, sign: float = 1.0) -> xr.DataArray:
    """Sums over pairings of products of covariances, without the last ones of them."""

    def value(indices: tuple[int, ...], rho: float) -> float:
        of = covariance(rho)
        terms = [math.prod(of[pair] for pair in pairs) for pairs in pair_places(indices)]
        kept = terms[: len(terms) - left_out] if terms else []
        return float(sum(kept) if sign > 0 else sum(map(abs, kept)))

    rho = data["products"].rho
    values = [[value(indices, float(each)) for indices in PRODUCTS] for each in rho]
    return xr.DataArray(values, {"rho": rho, "entries": data["products"].entries})


@states(
    ("lemma-3", "lemma-9", "lemma-20"),
    rivals={
        "without one pairing": lambda config, data: wick(data, left_out=1),
        "without two": lambda config, data: wick(data, left_out=2),
        "without signs": lambda config, data: wick(data, sign=-1.0),
    },
)
def lemma_3(config: Config, data: Data) -> lab.Relation:
    """Means of products of three to six correlated normal numbers are the sums over pairings."""
    return lab.equals(data["products"]["products"], wick(data))


def identity(name: str, cites: str, of: str, says: str, wrong: dict[str, str]) -> None:
    @states(
        cites,
        says,
        name=name,
        controls={
            called: lab.controls.replacing(cites, f"{cites} {other}", of=of)
            for called, other in wrong.items()
        },
    )
    def _(config: Config, data: Data) -> lab.Relation:
        return lab.zero_error(data[of][cites], tolerance=ROUNDING)


NOT_SYMMETRIC = {"M that is not symmetric": "asymmetric"}
identity(
    "gradient-of-factorization",
    "eq-6",
    "factorization",
    "The derivative of ¼ ‖U Uᵀ - M‖² is (U Uᵀ - M) U for a symmetric M.",
    NOT_SYMMETRIC,
)
identity(
    "expansion",
    "lemma-4",
    "factorization",
    "G Gᵀ is W³ - W² M - M W² + M W M, with G the derivative of the loss and a symmetric M.",
    NOT_SYMMETRIC | {"without M W M": "without"},
)
identity(
    "gradient-of-layers",
    "eq-20",
    "gradients",
    "The derivative by W_i is A_iᵀ R B_iᵀ in every layer of a linear network of three.",
    {"R with 2 Φ": "twice"},
)
identity(
    "gradient-of-outputs",
    "lemma-22",
    "gradients",
    "The derivative by W₂ is W₂ H - Φ Cᵀ, with means over a batch.",
    {"C of W₁x": "before"},
)


def stein(data: Data, times: float = 1.0) -> xr.DataArray:
    """Both sides of Lemma 17 for `FUNCTIONS`: u/2, 0 and u exp(-‖u‖²/2), or multiples."""
    length = data["vectors"].length
    damped = np.exp(-(length**2) * (U @ U) / 2)
    each = [0.5 * length, 0.0 * length, damped * length]
    of_function = xr.concat(each, "function").assign_coords(function=list(FUNCTIONS))
    return times * of_function * xr.DataArray(U[:2], dims="entry")


def sides(data: Data) -> xr.DataArray:
    found = data["vectors"]["stein"]
    return named(found, "side", "function", "entry").assign_coords(
        side=["x f", "∂f"], function=list(FUNCTIONS)
    )


def named(found: xr.DataArray, *dims: str) -> xr.DataArray:
    """The last dimensions of an output by name."""
    own = [dim for dim in found.dims if str(dim).startswith(f"{found.name}_dim")]
    return found.rename(dict(zip(sorted(map(str, own)), dims, strict=True)))


def half_and_twice(form: Callable[..., xr.DataArray]) -> dict[str, Any]:
    return {
        called: lambda config, data, times=times: form(data, times=times)
        for called, times in {"half of it": 0.5, "twice it": 2.0}.items()
    }


@states("lemma-17", rivals=half_and_twice(stein))
def lemma_17(config: Config, data: Data) -> lab.Relation:
    """For three Lipschitz functions the means of x_j f(x) and of ∂_j f(x) are the same number, that
    of an integral.
    """
    return lab.equals(sides(data), stein(data))


def surface(data: Data, times: float = 1.0) -> xr.DataArray:
    """The density of uᵀx at 0 times the mean of 1 + x_0² there, along u."""
    height = (2 - UNIT[0] ** 2) / np.sqrt(2 * np.pi)
    return times * height * xr.DataArray(UNIT[:2], dims="entry") + 0 * data["vectors"].length


@states(
    "remark-2", rivals=half_and_twice(surface) | {"Lemma 17": lambda _, data: surface(data, 0.0)}
)
def remark_2(config: Config, data: Data) -> lab.Relation:
    """For 1[uᵀx > 0] (1 + x_0²) the two sides of Lemma 17 differ by the mean on the hyperplane."""
    return lab.equals(named(data["vectors"]["jump"], "entry"), surface(data))


def half_normal(data: Data, moments: tuple[float, float, float]) -> xr.DataArray:
    """Moments of σ(Z), σ(Z)² and σ'(Z), in units of s, s² and 1."""
    s = data["vectors"].length
    return xr.concat([moments[0] * s, moments[1] * s**2, moments[2] + 0 * s], "moment")


ROOT = float(np.sqrt(2 * np.pi))


@states(
    "lemma-18",
    rivals={
        "those of |Z|": lambda _, data: half_normal(data, (2 / ROOT, 1.0, 0.5)),
        "the variance of σ(Z)": lambda _, data: half_normal(
            data, (1 / ROOT, 0.5 - 1 / ROOT**2, 0.5)
        ),
        "s/2": lambda _, data: half_normal(data, (0.5, 0.5, 0.5)),
    },
)
def lemma_18(config: Config, data: Data) -> lab.Relation:
    """The means of σ(Z), σ(Z)² and σ'(Z) are s/√(2π), s²/2 and 1/2."""
    found = named(data["vectors"]["half_normal"], "moment")
    return lab.equals(found, half_normal(data, (1 / ROOT, 0.5, 0.5)))


def kernels(data: Data, theta: float | None = None, sine: float = 1.0) -> xr.DataArray:
    """(43) and (44), or with another angle or without the sine."""
    angle, length = np.arccos(COSINE) if theta is None else theta, data["vectors"].length
    norms = np.sqrt((U @ U) * (V @ V)) * length**2
    first = sine * np.sin(angle) + (np.pi - angle) * np.cos(angle)
    each = [norms * first / (2 * np.pi), (np.pi - angle) / (2 * np.pi) + 0 * length]
    return xr.concat(each, "kernel")


@states(
    "lemma-19",
    rivals={
        "π - θ for θ": lambda _, data: kernels(data, theta=float(np.pi - np.arccos(COSINE))),
        "without sin θ": lambda _, data: kernels(data, sine=0.0),
        "half of sin θ": lambda _, data: kernels(data, sine=0.5),
    },
)
def lemma_19(config: Config, data: Data) -> lab.Relation:
    """The means of σ(uᵀx) σ(vᵀx) and σ'(uᵀx) σ'(vᵀx) are the kernels (43) and (44)."""
    return lab.equals(named(data["vectors"]["kernels"], "kernel"), kernels(data))


def half_space(data: Data, times: float = 0.5, along: float = 0.0) -> xr.DataArray:
    """I/2, or another multiple, and a part along u."""
    part = xr.DataArray(np.outer(UNIT, UNIT)[:2, :2], dims=ENTRIES)
    return times * IDENTITY + along * part + 0 * data["vectors"].length


@states(
    "lemma-21",
    rivals={
        "I/4": lambda _, data: half_space(data, times=0.25),
        "the covariance": lambda _, data: half_space(data, along=-1 / np.pi),
    },
    controls={
        "with an odd part": lab.controls.replacing(
            "half_space",
            lambda data: data["moved"].rename(
                {f"moved_dim_{i}": f"half_space_dim_{i}" for i in (0, 1)}
            ),
            of="vectors",
        )
    },
)
def lemma_21(config: Config, data: Data) -> lab.Relation:
    """The mean of x xᵀ 1[uᵀx > 0] is I/2 for u of three lengths."""
    return lab.equals(named(data["vectors"]["half_space"], *ENTRIES), half_space(data))


def hidden(data: Data, times: float = 1.0) -> xr.DataArray:
    """A row of W₁/2, or a multiple."""
    return times * data["vectors"].length * xr.DataArray(U[:2] / 2, dims="entry")


@states("lemma-23", rivals=half_and_twice(hidden))
def lemma_23(config: Config, data: Data) -> lab.Relation:
    """The mean of σ(uᵀx) xᵀ is uᵀ/2, which is a row of C = W₁/2."""
    return lab.equals(named(data["vectors"]["hidden"], "entry"), hidden(data))


def linear_part(data: Data, times: float = 1.0) -> xr.DataArray:
    """‖Φ‖²/4 times the identity, or a multiple."""
    return times * np.sum(TARGET**2) / 4 * IDENTITY + 0 * data["layers"].d1


@states("lemma-24", rivals=half_and_twice(linear_part))
def lemma_24(config: Config, data: Data) -> lab.Relation:
    """The part of G₁ that is odd in Φ has ‖Φ‖²/4 I as its mean outer product, given W₁."""
    return lab.equals(data["layers"]["linear"], linear_part(data))


@states(
    "eq-47",
    rivals={
        f"{called} of the linear part": partial(
            lambda config, data, times: linear_part(data, times), times=times
        )
        for called, times in {"a half": 0.5, "minus a half": -0.5}.items()
    },
    controls={"W₂ with the mean 1": lab.controls.replacing("cross", "shifted", of="layers")},
)
def parts_add(config: Config, data: Data) -> lab.Relation:
    """Given W₁ the products of the two parts of G₁ have the mean 0, so that their outer products
    add up.
    """
    return lab.equals(data["layers"]["cross"], 0 * linear_part(data))


GROWN = lab.controls.replacing(
    "of_cosine", lambda data: data["of_cosine"] * np.sqrt(data.d0), of="angles"
)


@states("eq-52", controls={"√d₀ times it": GROWN}, corrected=True)
def part_with_cosine(config: Config, data: Data) -> lab.Relation:
    """The part of T₃ with cos θ is O(d₂), not only O(d₂ √d₀): its exponent of d₀ is below 1/4."""
    return lab.bounded(data["angles"]["of_cosine"], "d0", slower_than=FREE)


def split(data: Data, printed: bool) -> xr.DataArray:
    """d₀/4π, or d₀ κ₂ alone."""
    form = theory.off_diagonal_1_as_printed if printed else theory.off_diagonal_1
    return lab.closed_form(form, data["angles"].d0, 1)


@states("eq-52", rivals={"d₀ κ₂ alone": lambda config, data: split(data, printed=True)})
def parts_of_pairs(config: Config, data: Data) -> lab.Relation:
    """Both parts together are d₀/4π for each output, where d₀ κ₂ is the leading term."""
    both = data["angles"]["of_cosine"] + data["angles"]["other"]
    return lab.equals(both.rename("T₃ of a pair"), split(data, printed=False))


EXPERIMENT = lab.Experiment(
    "outer-product-identities",
    ledger("outer-product"),
    title="The identities that the proofs of the three theorems take as known",
    summary=(
        "Gaussian integrals, kernels and derivatives are as printed; the nearest wrong formulas are"
        " excluded."
    ),
    config=Config,
    measure=run,
    statements=states,
    figure=("lemma-3", "lemma-17", "remark-2", "lemma-19"),
    scales={
        "smoke": {"sizes": (2, 3), "seeds": 20_000, "drawn": 10},
        "paper": {"seeds": 2_000_000, "drawn": 500},
    },
)
