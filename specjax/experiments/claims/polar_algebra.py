"""Claims 2 and 3 and the preamble's formulas: the polar factor as half-whitening."""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import xarray as xr
from jaxtyping import Array, Key

from specjax import lab, spectral, sweep
from specjax.experiments.claims.matrices import Matrices, cosine, normals, relative, spectra
from specjax.experiments.claims.measured_claims import Measured
from specjax.experiments.ledgers import ledger
from specjax.theory.second_moment import left_direction, symmetric_power

ROUNDING = 1e-10
"""Far above the float64 error (1e-13) and far below that of a wrong formula (1e-2)."""
SHAPES = {"wide": (3, 5), "tall": (5, 3), "square": (3, 3), "deficient": (5, 4)}
RANKS = {"wide": 3, "tall": 3, "square": 3, "deficient": 2}


def run(config: Matrices, key: Key[Array, ""]) -> dict[str, xr.Dataset]:
    """Distances of U Vᵀ from whitened forms for four shapes, and a vector's case under noise."""

    def forms(key: Key[Array, ""], condition: Array) -> dict[str, Array]:
        values = {name: condition ** -jnp.linspace(0.0, 1.0, rank) for name, rank in RANKS.items()}
        matrices = spectra(key, SHAPES, values)
        u, _, vt = jnp.linalg.svd(matrices["deficient"], full_matrices=False)

        def errors(form: Callable[[Array], Array]) -> Array:
            return jnp.stack([relative(form(g), spectral.polar(g)) for g in matrices.values()])

        return {
            "left": errors(lambda g: symmetric_power(g @ g.T, -0.5) @ g),
            "right": errors(lambda g: g @ symmetric_power(g.T @ g, -0.5)),
            "rescaled": errors(
                lambda g: g * (jnp.linalg.norm(spectral.polar(g)) / jnp.linalg.norm(g))
            ),
            "smallest": jnp.stack(
                [jnp.stack([_smallest(g @ g.T), _smallest(g.T @ g)]) for g in matrices.values()]
            ),
            "thin": relative(u @ vt, spectral.polar(matrices["deficient"])),
        }

    def vectors(key: Key[Array, ""], noise: Array) -> dict[str, Array]:
        g, mu, root = normals(key, (4, 1), (4, 1), (4, 4))
        unit, factor = g / jnp.linalg.norm(g), spectral.polar(mu)
        whitened = left_direction(mu @ mu.T + noise * root @ root.T, mu)
        return {
            "polar": relative(spectral.polar(g), unit),
            "gradient": relative(jax.grad(lambda v: jnp.sqrt(jnp.sum(v**2)))(g), unit),
            "per_sample": relative(left_direction(g @ g.T, g), unit),
            "expectation": relative(whitened, factor),
            "misaligned": 1 - cosine(whitened, mu),
            "no_noise": relative(left_direction(mu @ mu.T, mu), factor),
            "unnormalized": relative(g, unit),
        }

    conditions, noises = (
        {"condition": sweep.values(2.0, 10.0)},
        {"noise": sweep.values(0.01, 0.1, 1.0)},
    )
    with jax.enable_x64(True):
        found = lab.seeded_sweep(key, "matrices", forms, config.matrices, **conditions)
        return {
            "forms": sweep.labelled(found, "shape", "of", shape=list(SHAPES), of=["G Gᵀ", "GᵀG"]),
            "vectors": lab.seeded_sweep(key, "vectors", vectors, config.matrices, **noises),
        }


def _smallest(gram: Array) -> Array:
    """The smallest eigenvalue of a Gram matrix, relative to the largest."""
    eigenvalues = jnp.linalg.eigvalsh(gram)
    return jnp.abs(eigenvalues[0]) / eigenvalues[-1]


states = lab.Statements()
FORMS, VECTORS = Measured(states, "forms", ROUNDING), Measured(states, "vectors", ROUNDING)


@states(
    "claim-2", controls={"G, only rescaled": lab.controls.replacing("left", "rescaled", of="forms")}
)
def full_row_rank(config: Matrices, data: Mapping[str, xr.Dataset]) -> lab.Relation:
    """(G Gᵀ)^(-1/2) G = U Vᵀ where G has linearly independent rows."""
    return lab.zero_error(data["forms"]["left"].sel(shape=["wide", "square"]), tolerance=ROUNDING)


SQUARE = {
    "square G only": lab.controls.changing(lambda forms: forms.sel(shape=["square"]), of="forms")
}


@states(("claim-2", "preamble-forms"), holds=False, controls=SQUARE)
def inverses_exist(config: Matrices, data: Mapping[str, xr.Dataset]) -> lab.Relation:
    """The inverses exist at every shape and rank: the smallest eigenvalues of G Gᵀ and GᵀG are not
    zero.
    """
    return lab.above(data["forms"]["smallest"], FORMS.counts, "what is not rounding")


FORMS.agree(
    "thin",
    "claim-2",
    "thin",
    {"the compact one": lambda forms: forms["left"].sel(shape="deficient")},
    holds=False,
)("U Vᵀ may be taken from the thin decomposition, zero singular values included.")

OTHERS = {"G, only rescaled": "rescaled", "the thin decomposition": "thin"}
FORMS.agree(
    "pseudo-inverse", ("claim-2", "preamble-forms"), ("left", "right"), OTHERS, corrected=True
)("With pseudo-inverses and the compact decomposition both forms are U Vᵀ at every shape and rank.")
VECTORS.agree(
    "normalization", ("claim-3", "claim-13"), ("polar", "gradient"), {"g itself": "unnormalized"}
)("For one column Ortho(g) = g/‖g‖ = ∇‖g‖.")
VECTORS.agree(
    "preconditioner", "claim-3-preconditioner", "expectation", {"no noise": "no_noise"}, holds=False
)("For one column Muon's preconditioner is M^(-1/2) with M = E[g gᵀ]: M^(-1/2) μ = Ortho(μ).")

OF_SAMPLE = ("per_sample", "no_noise")
VECTORS.agree(
    "per-sample",
    "claim-3-preconditioner",
    OF_SAMPLE,
    {"an expectation": "expectation"},
    corrected=True,
)("It is the half-whitening by the sample's own g gᵀ, singular, with the pseudo-inverse.")
VECTORS.differ(
    "other-direction",
    "claim-3-preconditioner",
    "misaligned",
    {"no noise": "no_noise"},
    corrected=True,
)("Under an expectation the direction is another too.")


EXPERIMENT = lab.Experiment(
    "claims-polar",
    ledger("claims"),
    title=(
        "Ortho(G) = (G Gᵀ)^(-1/2) G with pseudo-inverses, and M^(-1/2) μ only for the sample's own"
        " second moment"
    ),
    summary=(
        "The inverses of the text exist both only for square G of full rank, and for one column M"
        " is g's own g gᵀ, no expectation."
    ),
    config=Matrices,
    measure=run,
    statements=states,
    scales={"quick": {"matrices": 70}, "smoke": {"matrices": 20}, "paper": {"matrices": 1000}},
)
