"""Host-side polynomials: published coefficients, equioscillation, optimality, certified bands."""

import jax.numpy as jnp
import numpy as np
import pytest

from specjax.spectral import NewtonSchulz, polar
from specjax.spectral.polynomials import (
    CUBIC,
    CUBIC5,
    MUON,
    PADE,
    Quintic,
    band,
    best_composition,
    best_quintic,
)

# Output of the authors' code, optimal_composition(l=1e-3, num_iters=10, safety_factor_eps=1e-2,
# cushion=0.02), printed in timm.
REFERENCE_CODE = [
    (8.237312490495555, -23.157747414558198, 16.680568411445915),
    (4.082441999064835, -2.893047735332586, 0.5252849256975648),
    (3.9263479922546582, -2.8547468034765298, 0.5318022422894988),
    (3.2982187133085143, -2.424541981026706, 0.48632008358844075),
    (2.2970369434552573, -1.63662558125903, 0.4002628455953627),
    (1.8763805351440397, -1.2347896577722228, 0.35891887501668385),
]
# The five-step table of dion, nanochat and the speedruns (safety 1.02, cushion 0.02).
FIVE_STEPS = [
    (8.156554524902461, -22.48329292557795, 15.878769915207462),
    (4.042929935166739, -2.808917465908714, 0.5000178451051316),
    (3.8916678022926607, -2.772484153217685, 0.5060648178503393),
    (3.285753657755655, -2.3681294933425376, 0.46449024233003106),
    (2.3465413258596377, -1.7097828382687081, 0.42323551169305323),
]
# The list printed in the paper, without safety.
PAPER = [
    (8.28721201814563, -23.595886519098837, 17.300387312530933),
    (4.107059111542203, -2.9478499167379106, 0.5448431082926601),
    (3.9486908534822946, -2.908902115962949, 0.5518191394370137),
    (3.3184196573706015, -2.488488024314874, 0.51004894012372),
    (2.300652019954817, -1.6689039845747493, 0.4188073119525673),
    (1.891301407787398, -1.2679958271945868, 0.37680408948524835),
]


def test_published_tables_are_reproduced():
    np.testing.assert_allclose(
        best_composition(10, 1e-3, 1.01, 0.02)[:6], REFERENCE_CODE, rtol=1e-13
    )
    np.testing.assert_allclose(best_composition(5, 1e-3, 1.02, 0.02), FIVE_STEPS, rtol=1e-13)
    np.testing.assert_allclose(
        best_composition(8, 1e-3, 1.0, 0.02407327424182761)[:6], PAPER, rtol=1e-13
    )


# The table of cubic5 (a, b) in public implementations of arXiv 2606.00371.
CUBIC_TABLE = [
    (3.3656576, -3.3420992),
    (2.5744352, -1.4957376),
    (2.5368962, -1.4312570),
    (2.4418906, -1.2764040),
    (2.2230472, -0.9630650),
]


def test_the_published_cubics_are_reproduced():
    np.testing.assert_allclose([p[:2] for p in CUBIC5], CUBIC_TABLE, rtol=0, atol=6e-8)
    assert {p.c for p in CUBIC5} == {0.0}
    assert band(CUBIC5, 7e-3) == pytest.approx((0.774108, 1.3), abs=1e-6)


@pytest.mark.integration
def test_cubic5_is_a_method_by_name():
    """Five steps X ← a X + b (X Xᵀ) X of the published table in NumPy."""
    x = np.random.default_rng(0).standard_normal((4, 9))
    y = x / np.linalg.norm(x)
    for a, b in CUBIC_TABLE:
        y = a * y + b * (y @ y.T) @ y
    for method in ("cubic5", NewtonSchulz(5, CUBIC5, gram=False)):
        np.testing.assert_allclose(polar(jnp.asarray(x, jnp.float32), method), y, atol=2e-5)


# The exchange in 70 decimal digits, for (steps, safety, cushion) and the step: which side errs in
# the last digits is thus known.
IN_70_DIGITS = {
    (8, 1.01, 0.02, 6): (1.85644234856042499, -1.21324498809085993, 0.356800348781267359),
    (8, 1.01, 0.02, 7): (1.87500000002218597, -1.25000000002465108, 0.375000000002465108),
    (8, 1.0, 0.02407327424182761, 6): (
        1.8750014808442193,
        -1.2500016453814815,
        0.37500016453818627,
    ),
    (8, 1.0, 0.02407327424182761, 7): (1.875, -1.25, 0.375),
    (10, 1.01, 0.02, 8): (1.8564356435704306, -1.2132376849161716, 0.35679963285317937),
    (10, 1.01, 0.02, 9): (1.8750000000061269, -1.2500000000068077, 0.37500000000068077),
}


def test_later_steps_where_the_published_tables_are_rounded():
    """The last intervals are so short that the equations are singular to double precision, in which
    the tables were computed.

    Printed are 1.8749994 for the first step 7 (6e-7 off), and 1.8750014808534 for the second step 6
    (9e-12 off).
    """
    for (steps, safety, cushion, step), exact in IN_70_DIGITS.items():
        np.testing.assert_allclose(
            best_composition(steps, 1e-3, safety, cushion)[step], exact, rtol=3e-10
        )
    printed = (1.8564423485617974, -1.2132449880935525, 0.3568003487825883)
    np.testing.assert_allclose(IN_70_DIGITS[8, 1.01, 0.02, 6], printed, rtol=1e-11)
    printed = (1.8750014808534479, -1.2500016453999487, 0.3750001645474248)
    np.testing.assert_allclose(IN_70_DIGITS[8, 1.0, 0.02407327424182761, 6], printed, rtol=1e-10)
    printed = (1.8749994, -1.2499988, 0.3749994)
    assert 5e-7 < np.abs(np.array(IN_70_DIGITS[8, 1.01, 0.02, 7]) - printed).max() < 2e-6


# Of [1 - d, 1 + d]: the first coefficient of the best quintic, in 70 digits; 15/8 + 135/128 d² +
# ...
SHORT = {
    0.1: 1.88563238420307,
    1e-2: 1.87510547727202,
    1e-3: 1.87500105468835,
    1e-4: 1.87500001054688,
    1e-5: 1.87500000010547,
}


def test_short_intervals_lose_few_digits():
    for d, first in SHORT.items():
        assert best_quintic(1 - d, 1 + d).a == pytest.approx(first, rel=1e-8)


@pytest.mark.parametrize("lower", [0.3, 1e-2, 1e-4])
def test_the_best_quintic_equioscillates_and_none_is_closer(lower):
    p = best_quintic(lower, 1.0)
    s = np.linspace(lower, 1, 200_001)
    error = 1 - p(s)
    bound = np.abs(error).max()
    extremes = [error[0], error[s < 0.6].min(), error[s > 0.6].max(), error[-1]]
    assert extremes == pytest.approx([bound, -bound, bound, -bound], rel=1e-8)
    # Of all points near it, the minimax polynomial has the smallest maximal error.
    for shift in 1e-3 * np.random.default_rng(0).standard_normal((20, 3)):
        assert np.abs(1 - np.array(Quintic(*(np.array(p) + shift))(s))).max() > bound


@pytest.mark.parametrize("upper", [1e-60, 2e-30, 3.0, 1e60])
@pytest.mark.parametrize("ratio", [1e-250, 1e-20, 0.1, 0.5, 0.9])
def test_the_best_quintic_scales_and_equioscillates_everywhere(ratio, upper):
    """Which on [l, 1] is what singles it out; for l near zero all that is left of it is the
    oscillation at the other nodes.
    """
    p = best_quintic(ratio * upper, upper)
    s = np.geomspace(max(ratio, 1e-3), 1, 200_001)
    error = 1 - p(s * upper)
    inside = error[1:-1][np.diff(np.sign(np.diff(error))) != 0]
    extremes = [1 - p(ratio * upper), *inside, error[-1]]
    assert len(extremes) == 4
    bound = np.max(np.abs(extremes))
    np.testing.assert_allclose(extremes, bound * np.array([1, -1, 1, -1]), rtol=1e-8, atol=1e-14)


def test_the_composition_is_better_than_repeating_its_parts():
    best = band(best_composition(4, 1e-2), 1e-2)
    for other in (
        [best_quintic(1e-2, 1.0)] * 4,
        [MUON] * 4,
        best_composition(4, 1e-2, cushion=0.2),
    ):
        lo, hi = band(other, 1e-2)
        assert max(1 - best[0], best[1] - 1) < max(1 - lo, hi - 1)


def test_safety_leaves_room_above_one():
    """Values up to `safety` times the interval still end near 1."""
    exact, safe = best_composition(5, 1e-3), best_composition(5, 1e-3, safety=1.02)
    assert band(safe, 1e-3, 1.02)[1] < 1.2
    assert band(exact, 1e-3, 1.02)[1] > 1.2


COMPOSITIONS = {
    "muon": [MUON] * 5,
    "cubic": [CUBIC] * 4,
    "mixed": [MUON, CUBIC, PADE],
    "express": best_composition(5, 1e-3, 1.02, 0.02),
    "negative": [Quintic(2.0, -4.0, 0.5), MUON],
}


@pytest.mark.parametrize("coefficients", COMPOSITIONS.values(), ids=COMPOSITIONS)
@pytest.mark.parametrize("lower", [0.0, 1e-2, 0.5])
def test_the_band_is_attained_and_never_left(coefficients, lower):
    s = np.linspace(lower, 1, 400_001)
    for p in coefficients:
        s = p(s)
    lo, hi = band(coefficients, lower)
    assert lo - 1e-12 <= s.min() <= lo + 1e-5
    assert hi - 1e-5 <= s.max() <= hi + 1e-12


def test_bands_of_known_iterations():
    assert band([MUON] * 5, 1e-2) == pytest.approx((0.6818, 1.1344), abs=1e-3)
    assert band([CUBIC] * 5, 1e-2) == pytest.approx((1e-2 * 1.5**5, 1.0), rel=2e-3)
    assert band([CUBIC], 1.0) == (1.0, 1.0)
    with pytest.raises(ValueError, match=r"0 <= lower <= upper, got lower=2\.0 and upper=1\.0"):
        band([CUBIC], 2.0)
