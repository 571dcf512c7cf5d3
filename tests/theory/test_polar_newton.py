import numpy as np
import pytest

from specjax.theory.polar_newton import newton_errors, newton_steps
from tests.reference.spectra import matrix_with


@pytest.mark.parametrize(
    "values", [(3.0, 1.0, 0.2), (0.9, 0.5, 0.1), (50.0, 2.0, 1.5), (1.0, 1.0, 1.0)]
)
def test_the_recursion_is_that_of_the_matrix_iteration(values):
    x, factor = matrix_with(values, (3, 3), 0), matrix_with([1.0] * 3, (3, 3), 0)
    predicted = newton_errors(min(values), max(values), 8)
    for expected in predicted:
        assert np.linalg.norm(x - factor, 2) == pytest.approx(expected, abs=1e-12)
        x = (x + np.linalg.inv(x).T) / 2


def test_after_the_first_step_the_error_halves_and_then_squares():
    errors = newton_errors(1e-6, 1.0, 40)
    np.testing.assert_allclose(
        errors[2:30], errors[1:29] ** 2 / (2 * (1 + errors[1:29])), rtol=1e-9, atol=1e-15
    )
    assert errors[0] < 1 < errors[1]


def test_steps_grow_with_the_logarithm_of_the_condition_number():
    steps = newton_steps(1 / 2.0 ** np.array([10, 20, 30]), 1.0, 1e-12)
    assert np.array_equal(np.diff(steps), [10, 10])
    assert np.array_equal(steps - [10, 20, 30], [4, 4, 4])
    assert newton_steps(1.0, 1.0, 1e-12) == 0
    # An error equal to the tolerance will do: 1 at s = 2, and 1/4 after a step to 5/4.
    assert newton_steps(2.0, 2.0, 1.0) == 0
    assert newton_steps(0.5, 2.0, 0.25) == 1
    assert newton_steps(1.0, 1.0, 0.0) == 0
    with pytest.raises(
        ValueError,
        match=r"^The iteration needs more than 5 steps; give a larger bound or tolerance\.$",
    ):
        newton_steps(1e-6, 1.0, 1e-12, most=5)
    # One of several that does not arrive is enough, and 201 steps are more than the default allows.
    with pytest.raises(ValueError, match="needs more than 5 steps"):
        newton_steps(np.array([1.0, 1e-6]), 1.0, 1e-12, most=5)
    assert newton_steps(2.0**-196, 1.0, 1e-12) == 200
    with pytest.raises(ValueError, match="needs more than 200 steps"):
        newton_steps(2.0**-197, 1.0, 1e-12)
