"""Section 4, Remark 1, Appendix C.8: the effect of the target on a first step, by descent and Muon.

The paper says of matrix factorization that orthogonalization strips away the isotropic part of G Gᵀ
and leaves what is aligned with the target M. Here two steps are taken from the same U, with M and
with M = 0. The *part* of a step that is due to M is the distance of the two normalized steps, G/‖G‖
of gradient descent and polar(G)/√d of Muon. It is judged at a fixed d and M as the width grows,
which is the paper's regime, and at widths near d, where U Uᵀ - M is not positive definite.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float, Key

from specjax import lab, sizes, spectral, sweep
from specjax.experiments.ledgers import ledger
from specjax.experiments.outer_product.statistics import extrapolate, gram
from specjax.models import matrix_factorization, relu_network
from specjax.models.targets import low_rank_target, sign_target
from specjax.theory import matrix_factorization as theory

D, RANK = 6, 3
D0, D2 = 25, 12
"""Input and output size of the ReLU network, those of Table C.7."""
GROWTH = 2.0
"""Largest eigenvalue over k of a growing target, which makes U Uᵀ - M indefinite at every width."""
STEPS = {"gradient_descent": "gradient descent", "muon": "Muon"}
PARTS = {"trace": "tr(H²)", "added": "what Φ adds"}

Data = dict[str, xr.Dataset]
Rival = Callable[["Config", Data], xr.DataArray]
states = lab.Statements()


class Config(lab.Config):
    """Widths and seeds of both models."""

    ks: tuple[int, ...] = lab.config.sizes(
        64, 128, 256, 512, 1024, least=D, points=5, help="large widths of factorization"
    )
    narrow_ks: tuple[int, ...] = lab.config.sizes(
        6, 8, 10, least=D, help="widths at which U Uᵀ - M is indefinite"
    )
    seeds: int = lab.config.seeds(2000, help="initializations of factorization at every width")
    d1s: tuple[int, ...] = lab.config.sizes(
        10, 20, 40, 80, 160, points=5, help="hidden units of the ReLU network"
    )
    relu_seeds: int = lab.config.seeds(
        1000, help="initializations of the ReLU network at every width"
    )


def run(config: Config, key: Key[Array, ""]) -> Data:
    """The part of both steps due to M, its cosine with M U, and both parts of G₂'s diagonal."""

    def relu(key: Key[Array, ""], d1: sizes.AnySize) -> dict[str, Array]:
        # The entries of Φ are those of Table C.7 up to their signs.
        phi = sign_target(sizes.stream(target_key, "ReLU network"), D2, D0, 3.0)
        params = relu_network.init(key, D0, d1, D2)
        # G₂ is odd in W₂ without Φ, and the part from Φ is even.
        opposite = relu_network.Params(params.w1, -params.w2)
        first, second = (relu_network.gradient(signed, phi).w2 for signed in (params, opposite))
        return {
            "rest": spectral.dominance.diagonal_mean(gram(first - second)) / 4,
            "added": spectral.dominance.diagonal_mean(gram(first + second)) / 4,
            "trace": jnp.sum(relu_network.hidden_gram(params.w1) ** 2),
        }

    def steps(key: Key[Array, ""], k: sizes.AnySize) -> dict[str, Array]:
        u = matrix_factorization.init(key, D, k)
        width = jnp.asarray(sizes.active(k), u.dtype)
        growth = GROWTH * width / spectral.spectral_norm(m)
        without, gradient, growing = (
            matrix_factorization.gradient(u, target) for target in (0 * m, m, growth * m)
        )
        parts = {
            "gradient_descent": _unit(gradient) - _unit(without),
            "muon": _step(gradient) - _step(without),
            "growing": _step(growing) - _step(without),
        }
        norms = {name: jnp.linalg.norm(part) for name, part in parts.items()}
        # A step goes against the gradient.
        cosines = {f"{name}_cosine": -jnp.sum(_unit(parts[name]) * _unit(m @ u)) for name in STEPS}
        return {**norms, **cosines, "least_eigenvalue": jnp.linalg.eigvalsh(gram(u) - m)[0]}

    target_key = sizes.stream(key, "targets")
    over = {"d1": sweep.widths(*config.d1s)}
    data = {"relu": lab.seeded_sweep(key, "ReLU weights", relu, config.relu_seeds, **over)}
    # The part of Muon's step falls to a few millionths of it.
    with jax.enable_x64(True):
        m = low_rank_target(sizes.stream(target_key, "factorization"), D, RANK)
        for name, ks in (("wide", config.ks), ("narrow", config.narrow_ks)):
            weights = sizes.stream(key, f"{name} weights")
            found = sweep.run(steps, {"k": sweep.widths(*ks)}, num_seeds=config.seeds, key=weights)
            data[name] = found.assign(target=(("row", "column"), np.asarray(m)))
    return data


def _unit(step: Float[Array, "m n"]) -> Float[Array, "m n"]:
    return step / jnp.linalg.norm(step)


def _step(gradient: Float[Array, "d k"]) -> Float[Array, "d k"]:
    return spectral.polar(gradient) / jnp.sqrt(jnp.asarray(D, gradient.dtype))


def both(data: xr.Dataset, names: dict[str, str], called: str) -> xr.DataArray:
    return data[list(names)].to_dataarray("of", called).assign_coords(of=list(names.values()))


def pair(names: dict[str, str], *values: float | int) -> xr.DataArray:
    return xr.DataArray(list(values), {"of": list(names.values())}, "of")


def exchange_steps(config: Config, data: Data) -> Data:
    return {**data, "wide": data["narrow"], "narrow": data["wide"]}


@states(
    "section-4-target",
    "Orthogonalization strips away the isotropic part and leaves M: the part of Muon's first step"
    " that is due to M does not vanish as the width grows.",
    holds=False,
    controls={
        "a target that grows with the width": lab.controls.replacing("muon", "growing", of="wide")
    },
)
def target_is_left(config: Config, data: Data) -> lab.Relation:
    return lab.settles(data["wide"]["muon"], "k")


@states(
    "section-4-target",
    "What orthogonalization leaves is aligned with M: the cosine of the part of Muon's first step"
    " that is due to M with MU does not vanish as the width grows.",
    holds=False,
    controls={
        "gradient descent's part": lab.controls.replacing(
            "muon_cosine", "gradient_descent_cosine", of="wide"
        )
    },
)
def left_is_aligned(config: Config, data: Data) -> lab.Relation:
    # The change of a polar factor is antisymmetric from the left, and M is symmetric.
    return lab.settles(data["wide"]["muon_cosine"], "k")


@states(
    "remark-1", holds=False, controls={"widths at which U Uᵀ - M is indefinite": exchange_steps}
)
def real_preconditioner(config: Config, data: Data) -> lab.Relation:
    """Where the gap of order k is, orthogonalization preconditions relative to the signal M: M has
    a larger part in Muon's first step than in gradient descent's.
    """
    return lab.ahead(data["wide"]["muon"], data["wide"]["gradient_descent"], least=0)


@states("section-4-target", corrected=True, controls={"both exchanged": exchange_steps})
def indefinite(config: Config, data: Data) -> lab.Relation:
    """U Uᵀ - M has a negative eigenvalue in most samples at widths near d, and none in most at
    large widths.
    """
    as_said = [data["narrow"]["least_eigenvalue"] < 0, data["wide"]["least_eigenvalue"] > 0]
    return lab.fraction(xr.concat(as_said, "k").rename("as said"), more_than=0.5)


@states(("section-4-target", "remark-1"), corrected=True, controls={"large widths": exchange_steps})
def narrow(config: Config, data: Data) -> lab.Relation:
    """At widths near d, where U Uᵀ - M is indefinite and no gap is, M has a larger part in Muon's
    first step than in gradient descent's.
    """
    # By a tenth of a step: less hardly changes it.
    return lab.ahead(data["narrow"]["muon"], data["narrow"]["gradient_descent"], least=0.1)


@states(
    ("section-4-target", "remark-1"),
    corrected=True,
    rivals={
        "1/k for both": pair(STEPS, -1, -1),
        "k^(-1/2) for gradient descent": pair(STEPS, -0.5, -1.5),
        "k^(-3/2) for both": pair(STEPS, -1.5, -1.5),
        "1/k² for Muon": pair(STEPS, -1, -2),
    },
)
def rates(config: Config, data: Data) -> lab.Relation:
    """The part of the first step that is due to M falls as 1/k for gradient descent and as k^(-3/2)
    for Muon.
    """
    return lab.scales_as(both(data["wide"], STEPS, "part due to M"), "k", pair(STEPS, -1, -1.5))


def constants_times(*factors: float | int) -> Rival:
    """The mean squares at k = 1 by the closed forms, times a factor each."""

    def squares(config: Config, data: Data) -> xr.DataArray:
        m = jnp.asarray(data["wide"]["target"].values)
        parts = theory.target_part(m, 1.0), theory.polar_target_part(m, 1.0)
        return pair(
            STEPS, *(factor * float(part) ** 2 for factor, part in zip(factors, parts, strict=True))
        )

    return squares


def all_of_it(config: Config, data: Data) -> xr.DataArray:
    """The constants of M in the place of M₀."""
    m = data["wide"]["target"].values
    factor = float(np.sum(m**2) / (np.sum(m**2) - np.trace(m) ** 2 / D))
    return constants_times(factor, factor)(config, data)


@states(
    ("section-4-target", "remark-1"),
    corrected=True,
    rivals={
        "M for M₀": all_of_it,
        "d for 8 in Muon's": constants_times(1, 8 / D),
        "2 for 8 in Muon's, W for 2 W^(1/2)": constants_times(1, 4),
        "8 for d in gradient descent's": constants_times(D / 8, 1),
    },
)
def constants(config: Config, data: Data) -> lab.Relation:
    """With M₀ = M - (tr M/d) I, the mean square of the part that is due to M is ‖M₀‖²/d k² for
    gradient descent and ‖M₀‖²/8 k³ for Muon.
    """
    squares = both(data["wide"], STEPS, "part due to M") ** 2 * data["wide"].k ** pair(STEPS, 2, 3)
    return lab.equals(
        extrapolate(squares, "k").rename("mean square at k = 1"),
        constants_times(1, 1)(config, data),
    )


@states(
    "appendix-c8-target",
    controls={
        "an exceptionally large Φ, ten times as large": lab.controls.replacing(
            "added", lambda data: 100 * data["added"], of="relu"
        )
    },
)
def mostly_without_target(config: Config, data: Data) -> lab.Relation:
    """At the sizes of Table C.7 and at every width the diagonal of G₂G₂ᵀ without Φ is larger than
    what Φ adds to it.
    """
    return lab.ahead(data["relu"]["rest"], data["relu"]["added"], least=0)


@states(
    "appendix-c8-target",
    rivals={
        "both as d₁²": pair(PARTS, 2, 2),
        "both as d₁": pair(PARTS, 1, 1),
        "tr(H²) as d₁^(3/2)": pair(PARTS, 1.5, 1),
        "what Φ adds constant": pair(PARTS, 2, 0),
    },
)
def orders(config: Config, data: Data) -> lab.Relation:
    """Of the diagonal of G₂G₂ᵀ the target-free tr(H²) grows as d₁², and what Φ adds as d₁."""
    return lab.scales_as(both(data["relu"], PARTS, "part of the diagonal"), "d1", pair(PARTS, 2, 1))


EXPERIMENT = lab.Experiment(
    "target",
    ledger("outer-product"),
    title="What the first step owes to the target: orthogonalization hides it",
    summary=(
        "Orthogonalization does not leave the target M, it strips it away: as the width grows, the"
        " part of the first normalized step that is due to M falls as 1/k for gradient descent and"
        " as k^(-3/2) for Muon; only near k = d does Muon bring out M."
    ),
    config=Config,
    measure=run,
    statements=states,
    scales={
        "smoke": {
            "ks": (32, 64, 128, 256, 512),
            "seeds": 100,
            "d1s": (5, 10, 20, 40, 80),
            "relu_seeds": 100,
        },
        "paper": {"ks": (64, 128, 256, 512, 1024, 2048), "seeds": 20_000, "relu_seeds": 10_000},
    },
)
