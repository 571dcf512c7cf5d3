"""The rules by which numbers become verdicts, at and around their boundaries, on numbers made by hand."""

import dataclasses
import json

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from specjax.report.verify import verified

from specjax import sweep
from specjax.experiments import verdicts
from specjax.sweep import AsymptoticExponent

WORDS = ("kebab-name", "paper, Theorem 1", "A statement.")
WIDTHS = np.array([8, 16, 32, 64, 128])
SCALES = (2.0**-20, 2.0**-3, 2.0**9, 2.0**40)


def swept(curve, noise=0.0, seeds=200, widths=WIDTHS):
    """Means exactly on `curve` over the widths, with independent relative noise over the seeds."""
    deviation = np.random.default_rng(0).standard_normal((len(widths), seeds))
    deviation -= deviation.mean(axis=1, keepdims=True)
    deviation /= deviation.std(axis=1, ddof=1, keepdims=True)
    values = np.asarray(curve)[:, None] * (1 + noise * deviation)
    return xr.DataArray(values, {"width": widths, "seed": np.arange(seeds)}, ("width", "seed"), "y")


def power(exponent, noise=0.01, **options):
    return sweep.fit_power_law(swept(7.0 * WIDTHS.astype(float) ** exponent, noise, **options), "width")


# A mean of 10 with standard error 0.25 has the interval [9, 11].
@pytest.mark.parametrize(
    ("predicted", "resolution", "verdict"),
    [
        (10.0, 1.0, "confirmed"),
        (11.0, 1.0, "confirmed"),
        (9.0, 1.0, "confirmed"),
        (11.0 + 1e-12, 1.0, "refuted"),
        (9.0 - 1e-12, 1.0, "refuted"),
        (11.0, 1.0 - 1e-12, "inconclusive"),
        (10.0, 0.5, "inconclusive"),
        # Too wide to confirm anything, and still far from the prediction.
        (12.0, 0.5, "refuted"),
        (-10.0, 100.0, "refuted"),
    ],
)
def test_a_mean_is_judged_by_four_standard_errors_and_the_resolution(predicted, resolution, verdict):
    check = verdicts.mean_check(*WORDS, predicted=predicted, mean=10.0, stderr=0.25, resolution=resolution)
    assert (check.verdict, check.interval) == (verdict, (9.0, 11.0))
    assert (check.predicted, check.measured) == (predicted, 10.0)


@pytest.mark.parametrize("predicted", [1.0, 1.0 + 1e-15])
def test_a_mean_without_spread_is_the_prediction_or_it_is_not(predicted):
    check = verdicts.mean_check(*WORDS, predicted=predicted, mean=1.0, stderr=0.0, resolution=0.1)
    assert check.verdict == ("confirmed" if predicted == 1.0 else "refuted")


@given(st.floats(-100, 100), st.floats(-3, 3), st.floats(0.01, 3), st.floats(0.01, 3), st.sampled_from(SCALES))
def test_the_unit_of_a_mean_does_not_change_its_verdict(mean, deviation, stderr, resolution, unit):
    numbers = {"predicted": mean + 4 * deviation * stderr, "mean": mean, "stderr": stderr, "resolution": resolution}
    plain = verdicts.mean_check(*WORDS, **numbers)
    # Powers of two, so that the rounding is the same too.
    scaled = verdicts.mean_check(*WORDS, **{name: unit * value for name, value in numbers.items()})
    assert scaled.verdict == plain.verdict
    assert scaled.interval == (unit * plain.interval[0], unit * plain.interval[1])


def closed_form(mean, *, predicted=0.0, stderr=1.0, resolution=4.0):
    mean = np.asarray(mean, float)
    shape = mean.shape
    return verdicts.closed_form_check(
        *WORDS,
        predicted=np.full(shape, predicted),
        mean=mean,
        stderr=np.broadcast_to(stderr, shape),
        resolution=resolution,
    )


def test_one_bad_point_among_many_refutes_a_closed_form():
    good = np.random.default_rng(0).uniform(-3.9, 3.9, (40, 5))
    assert closed_form(good).verdict == "confirmed"
    bad = good.copy()
    bad[17, 3] = -4.001
    check = closed_form(bad)
    assert check.verdict == "refuted"
    assert check.measured == pytest.approx(4.001, rel=1e-12)
    assert (check.predicted, check.interval) == (None, None)
    assert "200 values" in check.rule


@pytest.mark.parametrize(("deviation", "verdict"), [(4.0, "confirmed"), (-4.0, "confirmed"), (4.000001, "refuted")])
def test_a_closed_form_holds_up_to_four_standard_errors(deviation, verdict):
    assert closed_form([0.0, deviation, 0.0]).verdict == verdict


def test_each_point_of_a_closed_form_has_its_own_scale():
    stderr = np.array([1e-6, 1.0, 1e6])
    assert closed_form(3.0 * stderr, stderr=stderr, resolution=4 * stderr).verdict == "confirmed"
    # The same absolute deviations, on the wrong points.
    assert closed_form(3.0 * stderr[::-1], stderr=stderr, resolution=4 * stderr).verdict == "refuted"


@pytest.mark.parametrize(
    ("deviation", "resolution", "verdict"),
    [
        (1.0, [4.0, 4.0, 4.0], "confirmed"),
        (1.0, [4.0, 3.999, 4.0], "inconclusive"),
        (5.0, [4.0, 3.999, 4.0], "refuted"),
    ],
)
def test_a_closed_form_that_one_point_cannot_resolve_is_inconclusive(deviation, resolution, verdict):
    assert closed_form([0.0, deviation, 0.0], resolution=np.array(resolution)).verdict == verdict


def test_a_closed_form_without_spread_holds_exactly_or_not_at_all():
    check = closed_form([0.0, 1.0], stderr=np.array([0.0, 1.0]))
    assert (check.verdict, check.measured) == ("confirmed", 1.0)
    assert closed_form([1e-9, 0.0], stderr=0.0).verdict == "refuted"


def test_the_interval_of_a_pure_power_law_is_four_standard_errors_of_its_fit():
    fit = power(2.0, noise=0.05)
    assert 0 < fit.stderr < 0.05
    check = verdicts.exponent_check(*WORDS, predicted=2, fit=fit, resolution=0.5)
    assert check.verdict == "confirmed"
    assert check.interval == (fit.exponent - 4 * fit.stderr, fit.exponent + 4 * fit.stderr)
    for side in (-1, 1):
        inside, outside = (fit.exponent + side * factor * 4 * fit.stderr for factor in (0.999, 1.001))
        assert verdicts.exponent_check(*WORDS, predicted=inside, fit=fit, resolution=0.5).verdict == "confirmed"
        assert verdicts.exponent_check(*WORDS, predicted=outside, fit=fit, resolution=0.5).verdict == "refuted"
    narrow = 4 * fit.stderr * 0.999
    assert verdicts.exponent_check(*WORDS, predicted=2, fit=fit, resolution=narrow).verdict == "inconclusive"


# A standard error of 1/16 and these shifts are exact in binary, so the boundaries are too.
@pytest.mark.parametrize(
    ("predicted", "shift", "verdict"),
    [
        (2.0, 0.125, "confirmed"),
        (2.375, 0.125, "confirmed"),
        (1.625, -0.125, "confirmed"),
        (2.376, 0.125, "refuted"),
        (1.624, 0.125, "refuted"),
        # Half-widths of 1/2, the resolution, and just above it.
        (2.0, 0.25, "confirmed"),
        (2.0, 0.251, "inconclusive"),
        (1.0, 0.251, "refuted"),
    ],
)
def test_the_interval_of_an_asymptotic_exponent_holds_noise_and_shift(predicted, shift, verdict):
    half = 4 / 16 + abs(shift)
    fit = AsymptoticExponent(2.0, 1 / 16, shift, (2.0 - half, 2.0 + half))
    check = verdicts.exponent_check(*WORDS, predicted=predicted, fit=fit, resolution=0.5)
    assert check.verdict == verdict
    assert check.interval == pytest.approx((2.0 - half, 2.0 + half))
    assert "shift" in check.rule


def test_a_subleading_term_refutes_a_pure_law_and_not_an_asymptotic_one():
    data = swept(WIDTHS**2.0 * (1 + 12 / WIDTHS), noise=0.01)
    pure = verdicts.exponent_check(*WORDS, predicted=2, fit=sweep.fit_power_law(data, "width"), resolution=0.5)
    asymptotic = verdicts.exponent_check(
        *WORDS, predicted=2, fit=sweep.asymptotic_exponent(data, "width"), resolution=0.5
    )
    assert (pure.verdict, asymptotic.verdict) == ("refuted", "confirmed")
    assert pure.measured < 1.9


@pytest.mark.parametrize(
    ("exponent", "noise", "verdict"),
    [
        (-0.5, 0.01, "confirmed"),
        (-1.0, 0.3, "confirmed"),
        (0.0, 0.01, "refuted"),
        (0.5, 0.01, "refuted"),
        (-0.25, 0.01, "inconclusive"),
        # A decay, and a constant, that the noise hides: the local slope has a standard error of √2 · noise/√200/log 2.
        (-0.5, 1.0, "inconclusive"),
        (0.0, 1.0, "inconclusive"),
        (-0.27, 0.01, "confirmed"),
        (-0.23, 0.01, "refuted"),
    ],
)
def test_vanishing_is_a_decay_faster_than_the_fourth_root(exponent, noise, verdict):
    check = verdicts.vanishing_check(*WORDS, fit=power(exponent, noise))
    assert check.verdict == verdict
    low, high = check.interval
    assert low < check.measured < high
    # The standard error of a difference of two independent log means over log 2; a bootstrap of 1000 knows it to 2%.
    assert (high - low) / 8 == pytest.approx(np.sqrt(2) * noise / np.sqrt(200) / np.log(2), rel=0.15)


def test_a_quantity_that_settles_at_a_limit_does_not_vanish():
    # Steep at small widths, so that the exponent of a fit to all widths would say it does.
    curve = 1 + 1000 / WIDTHS.astype(float) ** 2
    fit = sweep.fit_power_law(swept(curve, noise=0.01), "width")
    assert fit.exponent + 4 * fit.stderr < verdicts.DECAY
    assert verdicts.vanishing_check(*WORDS, fit=fit).verdict == "refuted"


def test_vanishing_names_the_two_largest_widths_whatever_their_order():
    data = swept(1 / np.sqrt(WIDTHS), noise=0.01).isel(width=[3, 0, 4, 2, 1])
    check = verdicts.vanishing_check(*WORDS, fit=sweep.fit_power_law(data, "width"))
    assert "between widths 64 and 128" in check.rule
    assert check.verdict == "confirmed"


@pytest.mark.parametrize(
    ("lead", "stderr", "verdict"),
    [
        (0.5 + 1e-12, 0.125, "inconclusive"),  # from 0 to 1: its end is not above 0.02
        (0.53, 0.125, "confirmed"),
        (0.02, 0.0, "refuted"),
        (-0.49, 0.125, "refuted"),
        (-0.47, 0.125, "inconclusive"),
        (-3.0, 0.125, "refuted"),
    ],
)
def test_a_lead_is_confirmed_where_it_counts_and_refuted_the_other_way_round(lead, stderr, verdict):
    check = verdicts.lead_check(*WORDS, lead=lead, stderr=stderr, least=0.02)
    assert (check.verdict, check.measured) == (verdict, lead)
    assert check.interval == (lead - 4 * stderr, lead + 4 * stderr)


@pytest.mark.parametrize(
    ("margin", "verdict"), [(0.0, "confirmed"), (0.3, "confirmed"), (-1e-300, "refuted"), (float("nan"), "refuted")]
)
def test_a_bound_holds_up_to_equality(margin, verdict):
    assert verdicts.bound_check(*WORDS, smallest_margin=margin).verdict == verdict


def every_kind():
    asymptotic = AsymptoticExponent(2.0, 0.05, 0.1, (1.7, 2.3))
    numbers = {"predicted": 1, "mean": xr.DataArray(1.0), "stderr": np.float32(0.5)}
    return [
        verdicts.mean_check(*WORDS, **numbers, resolution=3),
        verdicts.closed_form_check(
            *WORDS, predicted=np.ones(3, np.float32), mean=np.ones(3), stderr=np.ones(3), resolution=3
        ),
        verdicts.exponent_check(*WORDS, predicted=2, fit=asymptotic, resolution=0.5),
        verdicts.exponent_check(*WORDS, predicted=2, fit=power(2.0), resolution=0.5),
        verdicts.vanishing_check(*WORDS, fit=power(-0.5)),
        verdicts.bound_check(*WORDS, smallest_margin=0.25),
    ]


@pytest.mark.parametrize("check", every_kind(), ids=["mean", "closed", "asymptotic", "power", "vanishing", "bound"])
def test_every_check_is_a_record_that_json_holds(check):
    record = dataclasses.asdict(check)
    assert json.loads(json.dumps(record, allow_nan=False)) == {
        **record,
        "interval": None if check.interval is None else list(check.interval),
    }
    assert all(type(number) is float for number in (check.measured, *(check.interval or ())))
    assert (check.name, check.source, check.statement) == WORDS
    assert check.rule
    assert verified("toy", [check]) == (check,)


@pytest.mark.parametrize("check", every_kind()[:4], ids=["mean", "closed", "asymptotic", "power"])
def test_a_prediction_lies_in_the_interval_unless_refuted(check):
    if check.interval is not None:
        assert check.interval[0] <= check.predicted <= check.interval[1]
    assert check.verdict != "refuted"


@pytest.mark.parametrize(
    ("error", "control", "verdict"),
    [
        ([0.0, 1e-9], [0.3, 2e-8], "confirmed"),
        ([0.0, 1e-8], [0.3], "confirmed"),
        ([0.0, 1.1e-8], [0.3], "refuted"),
        # One draw of the control that passes shows that the measurement is blind.
        ([0.0, 1e-9], [0.3, 1e-8], "inconclusive"),
        # An error is an error, whatever the control.
        ([0.5], [1e-9], "refuted"),
    ],
)
def test_an_identity_holds_up_to_rounding_and_where_its_control_does_not(error, control, verdict):
    check = verdicts.equality_check(*WORDS, error=np.array(error), control=np.array(control), tolerance=1e-8)
    assert (check.verdict, check.measured, check.predicted) == (verdict, max(error), 0.0)
    assert f"{min(control):.3g}" in check.rule


@pytest.mark.parametrize(
    ("difference", "stderr", "verdict"),
    [
        (0.5, 0.0, "confirmed"),
        (-0.5, 0.0, "confirmed"),
        (0.1, 0.0, "refuted"),
        (0.0, 0.02, "refuted"),
        (0.5, 0.09, "confirmed"),
        (0.5, 0.1, "inconclusive"),
        (0.05, 0.02, "inconclusive"),
        (-0.05, 0.02, "inconclusive"),
        (0.0, 1.0, "inconclusive"),
    ],
)
def test_a_difference_counts_beyond_the_resolution_and_four_standard_errors(difference, stderr, verdict):
    check = verdicts.difference_check(*WORDS, difference=difference, stderr=stderr, resolution=0.1)
    assert check.verdict == verdict
    assert check.interval == (difference - 4 * stderr, difference + 4 * stderr)
