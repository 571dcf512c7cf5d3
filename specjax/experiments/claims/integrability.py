"""Claims 4 and 13: whether Ortho is a gradient field. It is, of the nuclear norm; Newton–Schulz steps are not.

Two tests of a field F on m×n matrices that do not share a computation: the symmetry of its Jacobian, and the integral of ⟨F, dG⟩
around closed loops.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from matplotlib.axes import Axes

from specjax import spectral, sweep
from specjax.experiments.claims.contract import Claim, Config, corrected, printed
from specjax.experiments.claims.matrices import jacobian_asymmetry, normals, orthonormal, relative
from specjax.experiments.contract import Check, Data
from specjax.experiments.verdicts import bound_check, difference_check, equality_check
from specjax.spectral import NewtonSchulz

Field = Callable[[Array], Array]

SHAPES = ((3, 2), (4, 4))
LOOP_SHAPE = (3, 2)
LOOP_POINTS = 64
ROUNDING = 1e-8
"""Errors are below 1e-12 for the matrices used; a field that is not conservative has asymmetry of order 0.1."""


def _fixed_scale(scale: Array) -> Field:
    """Five Newton–Schulz steps from G / scale, the scale not depending on G."""

    def field(g: Array) -> Array:
        x = g / scale
        for p in NewtonSchulz().polynomials():
            gram = x @ x.T
            x = p.a * x + (p.b * gram + p.c * gram @ gram) @ x
        return x

    return field


def _newton_schulz(g: Array) -> Array:
    return spectral.polar(g, NewtonSchulz())


def _swirl(g: Array) -> Array:
    """G times a rotation by 90°: a field that is certainly no gradient."""
    return g @ jnp.asarray([[0.0, 1.0], [-1.0, 0.0]])


def circulation(field: Field, centre: Float[Array, "m n"], plane: Float[Array, "2 m n"]) -> Float[Array, ""]:
    """∮ ⟨F, dG⟩ around centre + ½ (cos t · plane[0] + sin t · plane[1]), by the trapezoid rule, which is spectrally accurate here."""
    angles = 2 * jnp.pi * jnp.arange(LOOP_POINTS, dtype=centre.dtype) / LOOP_POINTS

    def integrand(t: Array) -> Array:
        point = centre + 0.5 * (jnp.cos(t) * plane[0] + jnp.sin(t) * plane[1])
        velocity = 0.5 * (-jnp.sin(t) * plane[0] + jnp.cos(t) * plane[1])
        return jnp.sum(field(point) * velocity)

    return 2 * jnp.pi * jnp.mean(jax.vmap(integrand)(angles))


def _well_conditioned(x: Array, spread: Array) -> Array:
    """For m >= n: orthonormal columns times a positive definite matrix, eigenvalues 1 to `spread`: derivatives are of order 1."""
    n = x.shape[1]
    return (
        orthonormal(x)
        @ (jnp.diag(jnp.linspace(1.0, 0.0, n)) * (spread - 1) + jnp.eye(n))
        @ orthonormal(x[:n] + x[-n:]).T
    )


def run_jacobian(config: Config) -> Data:
    """Jacobians of Ortho by its closed-form derivative, at random matrices and at I, and of Newton–Schulz steps."""

    def measure(key: Array, spread: Array) -> dict[str, Array]:
        *starts, direction = normals(key, *SHAPES, LOOP_SHAPE)
        asymmetries, smallest = [], []
        for x in starts:
            jacobian = jax.jacfwd(spectral.polar)(_well_conditioned(x, spread))
            size = x.size
            square = jacobian.reshape(size, size)
            asymmetries.append(jacobian_asymmetry(jacobian))
            smallest.append(jnp.linalg.eigvalsh((square + square.T) / 2)[0])
        g = _well_conditioned(starts[0], spread)
        step = 1e-5
        difference = spectral.nuclear_norm(g + step * direction) - spectral.nuclear_norm(g - step * direction)
        at_identity = jax.jacfwd(spectral.polar)(jnp.eye(2))
        return {
            "asymmetry": jnp.stack(asymmetries),
            "smallest_eigenvalue": jnp.stack(smallest),
            "potential": difference / (2 * step) - jnp.sum(spectral.polar(g) * direction),
            "potential_control": difference / (2 * step) - jnp.sum(g * direction),
            # ⟨dG_b, dF[dG_a]⟩ and ⟨dG_a, dF[dG_b]⟩ for dG_a = E_12 and dG_b = E_21.
            "mixed": jnp.stack([at_identity[1, 0, 0, 1], at_identity[0, 1, 1, 0]]),
            "newton_schulz": jacobian_asymmetry(jax.jacfwd(_newton_schulz)(g)),
            "fixed_scale": jacobian_asymmetry(jax.jacfwd(_fixed_scale(jnp.linalg.norm(g)))(g)),
        }

    with jax.enable_x64(True):
        over = {"spread": sweep.values(1.5, 4.0)}
        return {"jacobian": sweep.run(measure, over, seeds=config.matrices, key=jax.random.key(config.seed))}


def check_jacobian(config: Config, data: Data) -> list[Check]:
    """Claim 4."""
    found = data["jacobian"]
    asymmetry, newton_schulz = found["asymmetry"].values, found["newton_schulz"].values
    mixed = found["mixed"].values
    return [
        equality_check(
            *printed(4, "mixed-products", "At G = I the mixed derivatives in E_ab and E_ba are +1/2 and -1/2."),
            error=np.abs(mixed - np.array([0.5, -0.5])),
            control=np.max(np.abs(mixed - np.array([-0.5, 0.5]))),
            tolerance=ROUNDING,
        ),
        difference_check(
            *printed(
                4,
                "skew-part",
                "For matrices with two or more columns the Jacobian J of Ortho has a skew part, ‖J - Jᵀ‖ / ‖J‖ > 0.",
            ),
            difference=np.max(asymmetry),
            resolution=ROUNDING,
        ),
        equality_check(
            *corrected(4, "mixed-products", "At G = I both mixed derivatives are -1/2."),
            error=np.abs(mixed + 0.5),
            control=np.max(np.abs(mixed - np.array([0.5, -0.5]))),
            tolerance=ROUNDING,
        ),
        equality_check(
            *corrected(4, "symmetric", "At every G of full rank the Jacobian of Ortho is symmetric."),
            error=asymmetry,
            control=newton_schulz,
            tolerance=ROUNDING,
        ),
        bound_check(
            *corrected(
                4, "semidefinite", "There it is positive semidefinite: Ortho is the gradient of a convex function."
            ),
            smallest_margin=float(np.min(found["smallest_eigenvalue"].values)) + ROUNDING,
        ),
        equality_check(
            *corrected(4, "potential", "The function is the nuclear norm: its finite differences are ⟨Ortho(G), dG⟩."),
            error=np.abs(found["potential"].values),
            control=np.max(np.abs(found["potential_control"].values)),
            tolerance=1e-7,
        ),
        difference_check(
            *corrected(
                4,
                "newton-schulz",
                "Muon's five Newton–Schulz steps from G/‖G‖_F are another field, which is not conservative: ‖J - Jᵀ‖ / ‖J‖ > 0.",
            ),
            difference=np.min(newton_schulz),
            resolution=ROUNDING,
        ),
        equality_check(
            *corrected(
                4,
                "normalizer",
                "That is due to ‖G‖_F alone: with a scale that does not depend on G the steps are conservative.",
            ),
            error=found["fixed_scale"].values,
            control=newton_schulz,
            tolerance=ROUNDING,
        ),
    ]


def draw_jacobian(axes: Axes, config: Config, data: Data) -> None:
    """Histograms of the asymmetry of the three fields."""
    found = data["jacobian"]
    bins = np.logspace(-17, 0, 40).tolist()
    for index, (name, label) in enumerate(
        (
            ("asymmetry", "Ortho"),
            ("fixed_scale", "Newton–Schulz, fixed scale"),
            ("newton_schulz", "Newton–Schulz, G/‖G‖_F"),
        )
    ):
        axes.hist(np.maximum(found[name].values.ravel(), 1e-17), bins, color=f"C{index}", alpha=0.7, label=label)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("‖J - Jᵀ‖ / ‖J‖")
    axes.legend(fontsize="x-small")


def run_curl(config: Config) -> Data:
    """Integrals around loops, and Ortho next to the gradients of ‖g‖ and of the Frobenius norm."""

    def measure(key: Array, radius: Array) -> dict[str, Array]:
        start, first, second, column, left, right = normals(key, *[LOOP_SHAPE] * 3, (4, 1), (4, 1), (3, 1))
        g = _well_conditioned(start, jnp.asarray(2.0))
        basis = orthonormal(jnp.stack([first.ravel(), second.ravel()], axis=1)).T.reshape(2, *LOOP_SHAPE)
        plane = radius * basis
        rank_one = left @ right.T

        def frobenius(x: Array) -> Array:
            return jnp.sqrt(jnp.sum(x**2))

        return {
            "ortho": circulation(spectral.polar, g, plane),
            "newton_schulz": circulation(_newton_schulz, g, plane),
            "swirl": circulation(_swirl, g, plane),
            "column": relative(spectral.polar(column), jax.grad(frobenius)(column)),
            "rank_one": relative(spectral.polar(rank_one), jax.grad(frobenius)(rank_one)),
            "full_rank": relative(spectral.polar(g), jax.grad(frobenius)(g)),
        }

    with jax.enable_x64(True):
        over = {"radius": sweep.values(0.4, 0.8)}
        return {"loops": sweep.run(measure, over, seeds=config.matrices, key=jax.random.key(config.seed))}


def check_curl(config: Config, data: Data) -> list[Check]:
    """Claim 13."""
    loops = data["loops"]
    circulations = {name: np.abs(loops[name].values) for name in ("ortho", "newton_schulz", "swirl")}
    return [
        equality_check(
            *printed(13, "column", "For one column Ortho(g) = ∇‖g‖."),
            error=loops["column"],
            control=loops["full_rank"],
            tolerance=ROUNDING,
        ),
        difference_check(
            *printed(
                13,
                "curl",
                "For two or more columns the curl is not zero: Ortho has a circulation around some closed loop.",
            ),
            difference=np.max(circulations["ortho"]),
            resolution=ROUNDING,
        ),
        equality_check(
            *corrected(
                13, "circulation", "Around closed loops through matrices of full rank the circulation of Ortho is zero."
            ),
            error=circulations["ortho"],
            # A loop may lie in a plane in which even the control does not turn.
            control=np.quantile(circulations["swirl"], 0.25),
            tolerance=ROUNDING,
        ),
        difference_check(
            *corrected(13, "newton-schulz", "Newton–Schulz steps from G/‖G‖_F do have a circulation."),
            difference=np.max(circulations["newton_schulz"]),
            resolution=ROUNDING,
        ),
        equality_check(
            *corrected(
                13, "rank-one", "As a statement on the Frobenius norm the title is right: at rank 1 Ortho(G) = ∇‖G‖_F."
            ),
            error=loops["rank_one"],
            control=loops["full_rank"],
            tolerance=ROUNDING,
        ),
        difference_check(
            *corrected(13, "higher-rank", "At higher rank Ortho(G) is not ∇‖G‖_F."),
            difference=np.min(loops["full_rank"].values),
            resolution=ROUNDING,
        ),
    ]


def draw_curl(axes: Axes, config: Config, data: Data) -> None:
    """Absolute circulations of the three fields."""
    loops = data["loops"]
    labels = {"ortho": "Ortho", "newton_schulz": "Newton–Schulz", "swirl": "G times\nrotation"}
    for place, name in enumerate(labels):
        values = np.maximum(np.abs(loops[name].values.ravel()), 1e-17)
        axes.plot(place + np.linspace(-0.3, 0.3, values.size), values, ".", color=f"C{place}", markersize=2)
    axes.set_yscale("log")
    axes.set_xticks(range(3), list(labels.values()))
    axes.set_ylabel("|∮⟨F, dG⟩|")


CLAIMS = (
    Claim(
        4,
        "Ortho is not integrable",
        "For matrices with two or more columns the Jacobian of Ortho has a skew part, so it has no potential.",
        "False: Ortho is the gradient of the nuclear norm. What Muon computes, Newton–Schulz from G/‖G‖_F, is not a gradient.",
        "claim-4-printed-skew-part",
        frozenset({"claim-4-printed-mixed-products", "claim-4-printed-skew-part"}),
        run_jacobian,
        check_jacobian,
        draw_jacobian,
    ),
    Claim(
        13,
        "A gradient only for one column",
        "Ortho(g) = ∇‖g‖ for one column; for more the curl is not zero.",
        "The first half is true. The curl is zero at every number of columns; only the potential changes its name.",
        "claim-13-printed-curl",
        frozenset({"claim-13-printed-curl"}),
        run_curl,
        check_curl,
        draw_curl,
    ),
)
