"""Claims 2 and 3, and the formulas of the preamble: the polar factor as a half-whitening, for vectors too."""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import xarray as xr
from jaxtyping import Array, Key

from specjax import lab, sizes, spectral, sweep
from specjax.experiments.claims.errors import Errors
from specjax.experiments.claims.matrices import normals, relative, spectra
from specjax.experiments.ledgers import ledger
from specjax.theory.second_moment import left_direction, symmetric_power

ROUNDING = 1e-10
"""Far above the error of float64 with the condition numbers used here (1e-13), and far below that of any wrong formula (1e-2)."""
SHAPES = {"wide": (3, 5), "tall": (5, 3), "square": (3, 3), "deficient": (5, 4)}
RANKS = {"wide": 3, "tall": 3, "square": 3, "deficient": 2}


class Config(lab.Config):
    """On how many matrices an identity is tried."""

    matrices: int = lab.seeds(200, least=20, help="random matrices")


def run(config: Config, key: Key[Array, ""]) -> dict[str, xr.Dataset]:
    """Distances between U Vᵀ and the whitened forms, for four shapes; a vector's normalization against M^(-1/2) μ under noise."""

    def forms(key: Key[Array, ""], condition: Array) -> dict[str, Array]:
        matrices = spectra(
            key, SHAPES, {name: condition ** -jnp.linspace(0.0, 1.0, rank) for name, rank in RANKS.items()}
        )
        factors = {name: spectral.polar(g) for name, g in matrices.items()}
        u, _, vt = jnp.linalg.svd(matrices["deficient"], full_matrices=False)

        def errors(form: Callable[[Array], Array]) -> Array:
            return jnp.stack([relative(form(g), factors[name]) for name, g in matrices.items()])

        return {
            "left": errors(lambda g: symmetric_power(g @ g.T, -0.5) @ g),
            "right": errors(lambda g: g @ symmetric_power(g.T @ g, -0.5)),
            "rescaled": errors(lambda g: g * (jnp.linalg.norm(spectral.polar(g)) / jnp.linalg.norm(g))),
            "smallest": jnp.stack([jnp.stack([_smallest(g @ g.T), _smallest(g.T @ g)]) for g in matrices.values()]),
            "thin": relative(u @ vt, factors["deficient"]),
        }

    def vectors(key: Key[Array, ""], noise: Array) -> dict[str, Array]:
        g, mu, root = normals(key, (4, 1), (4, 1), (4, 4))
        unit = g / jnp.linalg.norm(g)
        whitened = left_direction(mu @ mu.T + noise * root @ root.T, mu)
        return {
            "polar": relative(spectral.polar(g), unit),
            "gradient": relative(jax.grad(lambda v: jnp.sqrt(jnp.sum(v**2)))(g), unit),
            "per_sample": relative(left_direction(g @ g.T, g), unit),
            "expectation": relative(whitened, spectral.polar(mu)),
            "misaligned": 1 - jnp.sum(whitened * mu) / (jnp.linalg.norm(whitened) * jnp.linalg.norm(mu)),
            "no_noise": relative(left_direction(mu @ mu.T, mu), spectral.polar(mu)),
            "unnormalized": relative(g, unit),
        }

    with jax.enable_x64(True):
        found = sweep.run(
            forms, {"condition": sweep.values(2.0, 10.0)}, seeds=config.matrices, key=sizes.stream(key, "matrices")
        )
        over = {"noise": sweep.values(0.01, 0.1, 1.0)}
        shapes = {f"{name}_dim_0": "shape" for name in ("left", "right", "rescaled", "smallest")}
        return {
            "forms": found.rename(shapes | {"smallest_dim_1": "of"}).assign_coords(
                shape=list(SHAPES), of=["G Gᵀ", "GᵀG"]
            ),
            "vectors": sweep.run(vectors, over, seeds=config.matrices, key=sizes.stream(key, "vectors")),
        }


def _smallest(gram: Array) -> Array:
    """The smallest eigenvalue of a Gram matrix, relative to the largest."""
    eigenvalues = jnp.linalg.eigvalsh(gram)
    return jnp.abs(eigenvalues[0]) / eigenvalues[-1]


FORMS, VECTORS = Errors("forms", ROUNDING), Errors("vectors", ROUNDING)


@lab.statement(
    "claim-2",
    "(G Gᵀ)^(-1/2) G = U Vᵀ where G has linearly independent rows.",
    controls={"G, only rescaled": lab.replacing("left", "rescaled", of="forms")},
)
def full_row_rank(config: Config, data: Mapping[str, xr.Dataset]) -> lab.Relation:
    """Where the inverse is one."""
    return lab.identity(data["forms"]["left"].sel(shape=["wide", "square"]), tolerance=ROUNDING)


@lab.statement(
    ("claim-2", "preamble-forms"),
    "The inverses exist at every shape and rank: the smallest eigenvalues of G Gᵀ and GᵀG are not zero.",
    holds=False,
    controls={"square G only": lambda config, data: {**data, "forms": data["forms"].sel(shape=["square"])}},
)
def inverses_exist(config: Config, data: Mapping[str, xr.Dataset]) -> lab.Relation:
    """No shape or rank is printed."""
    return lab.above(data["forms"]["smallest"], FORMS.counts, "what is not rounding")


STATEMENTS = (
    full_row_rank,
    inverses_exist,
    FORMS.agree(
        "thin",
        "claim-2",
        "U Vᵀ may be taken from the thin decomposition, zero singular values included.",
        "thin",
        {"the compact one": lambda forms: forms["left"].sel(shape="deficient")},
        holds=False,
    ),
    FORMS.agree(
        "pseudo-inverse",
        ("claim-2", "preamble-forms"),
        "With pseudo-inverses and the compact decomposition both forms are U Vᵀ at every shape and rank.",
        ("left", "right"),
        {"G, only rescaled": "rescaled", "the thin decomposition": "thin"},
        corrected=True,
    ),
    VECTORS.agree(
        "normalization",
        ("claim-3", "claim-13"),
        "For one column Ortho(g) = g/‖g‖ = ∇‖g‖.",
        ("polar", "gradient"),
        {"g itself": "unnormalized"},
    ),
    VECTORS.agree(
        "preconditioner",
        "claim-3-preconditioner",
        "For one column Muon's preconditioner is M^(-1/2) with M = E[g gᵀ]: M^(-1/2) μ = Ortho(μ).",
        "expectation",
        {"no noise": "no_noise"},
        holds=False,
    ),
    VECTORS.agree(
        "per-sample",
        "claim-3-preconditioner",
        "It is the half-whitening by the sample's own g gᵀ, singular, with the pseudo-inverse.",
        ("per_sample", "no_noise"),
        {"an expectation": "expectation"},
        corrected=True,
    ),
    VECTORS.differ(
        "other-direction",
        "claim-3-preconditioner",
        "Under an expectation the direction is another too.",
        "misaligned",
        {"no noise": "no_noise"},
        corrected=True,
    ),
)


EXPERIMENT = lab.Experiment(
    "claims-polar",
    ledger("claims"),
    title="Ortho(G) = (G Gᵀ)^(-1/2) G with pseudo-inverses, and M^(-1/2) μ only for the sample's own second moment",
    summary="Both forms of Ortho are U Vᵀ of the compact decomposition, with pseudo-inverses; the inverses of the text exist both only for "
    "square G of full rank. For one column Ortho(g) = ∇‖g‖ is M^(-1/2) g with g's own g gᵀ, not with an expectation.",
    config=Config,
    measure=run,
    statements=STATEMENTS,
    scales={"smoke": {"matrices": 20}, "paper": {"matrices": 1000}},
)
