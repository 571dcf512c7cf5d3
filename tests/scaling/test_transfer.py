"""Transfer where the loss of every training is known: optima, exponents, costs and verdicts; grids
that widen; wrong calls.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import xarray as xr
from matplotlib import pyplot as plt
from scipy import optimize

from specjax import scaling, sizes
from specjax.scaling.transfer_loss import cost_of_narrowest, optima_of
from tests.scaling.problems import CURVATURES, closed_form, quadratic, sums
from tests.wrong_calls import wrong_calls

WIDTHS, STEPS = (16, 32, 64), 6
RATES = tuple(float(rate) for rate in 0.02 * 2.0 ** np.arange(5))
BATCH = jnp.asarray(CURVATURES, jnp.float32)


def descent(optimizer=optax.sgd, build=sums, **settings):
    settings = {
        "widths": WIDTHS,
        "rates": RATES,
        "batch": BATCH,
        "steps": STEPS,
        "num_seeds": 10,
    } | settings
    return scaling.transfer(build, quadratic, optimizer, progress=False, **settings)


def noisy(key):
    """The curvatures with noise of each batch."""
    return BATCH * jnp.exp(0.1 * jax.random.normal(key, (4,)))


@pytest.fixture(scope="module")
def standard():
    return descent()


@pytest.fixture(scope="module")
def scaled():
    return descent(lambda rate, width: optax.sgd(16 * rate / width))


@pytest.mark.integration
def test_the_losses_are_the_closed_form(standard):
    # The fewest rates that hold every optimum: the grid was widened below, by half its length at a
    # time.
    rates = standard.data.rate.values
    np.testing.assert_allclose(rates[:-1] / rates[1:], 0.5, rtol=1e-6)
    assert rates[-1] == pytest.approx(RATES[-1])
    expected = [[closed_form(rate, width, STEPS) for rate in rates] for width in WIDTHS]
    found = standard.data["loss"].transpose("width", "rate", "seed").values
    np.testing.assert_allclose(
        found, np.repeat(np.array(expected)[..., None], 10, axis=2), rtol=1e-3
    )


@pytest.mark.integration
def test_in_standard_parametrization_a_rate_does_not_transfer(standard):
    for width, (low, high) in zip(WIDTHS, standard.optimum.intervals, strict=True):
        best = optimize.minimize_scalar(
            closed_form, bounds=(0.1 / width, 2 / width), args=(width, STEPS), method="bounded"
        )
        assert low <= best.x <= high
    assert standard.optimum.exponent == pytest.approx(-1, abs=1e-3)
    assert standard.verdict == "does not transfer"
    narrow = standard.optimum.grid[standard.optimum.best[0]]
    own = standard.optimum.grid[standard.optimum.best[2]]
    cost = closed_form(narrow, 64, STEPS) / closed_form(own, 64, STEPS) - 1
    assert standard.costs[64.0] == pytest.approx(cost, rel=1e-2)


@pytest.mark.integration
def test_scaled_by_the_width_it_transfers_at_no_cost(scaled):
    assert scaled.optimum.exponent == pytest.approx(0, abs=1e-3)
    assert scaled.verdict == "transfers"
    assert scaled.costs == {32.0: pytest.approx(0, abs=1e-5), 64.0: pytest.approx(0, abs=1e-5)}


@pytest.mark.integration
def test_a_rate_that_diverges_at_a_wider_width_does_not_transfer():
    found = descent(steps=60, widths=(8, 64), rates=RATES[:3])
    assert np.isinf(found.cost.sel(width=64)).all()
    assert found.verdict == "does not transfer"
    assert "diverges at width 64 in 10 of 10 seeds" in str(found)


@pytest.mark.integration
def test_a_grid_is_widened_to_its_limit_and_then_undecided():
    found = descent(rates=(1e-4, 2e-4, 4e-4), widen=2, steps=2)
    np.testing.assert_allclose(found.data.rate, 1e-4 * 2.0 ** np.arange(5), rtol=1e-6)
    assert found.verdict == "not decided"
    assert "a better one may lie beyond" in str(found)


@pytest.mark.integration
def test_diverging_rates_are_named_with_the_largest_finite_one():
    with pytest.raises(
        ValueError,
        match=r"At width 64 .* at every 'rate' .*the largest at which no seed is: .* at width 16",
    ):
        descent(widths=(16, 64), rates=(0.1, 0.11, 0.12), steps=60, widen=0)


@pytest.mark.integration
def test_padded_plans_and_sampled_batches_match_the_exact_plan():
    def padded(key, width):
        # Only floating arrays are trained.
        return {"w": sizes.normal(key, (width, 4)) / 64, "there": sizes.mask(width)}

    def masked(model, batch):
        return quadratic({"w": jnp.where(model["there"][:, None], model["w"], 0)}, batch)

    both = [
        scaling.transfer(
            padded,
            masked,
            lambda rate, width: optax.sgd(16 * rate / jnp.asarray(sizes.active(width), rate.dtype)),
            batch=noisy,
            plan=plan,
            widths=WIDTHS[:2],
            rates=RATES[:3],
            steps=STEPS,
            widen=0,
            progress=False,
        )
        for plan in ("exact", "padded")
    ]
    np.testing.assert_allclose(both[0].data["loss"], both[1].data["loss"], rtol=1e-4)
    # Every seed has batches of its own, and the same ones at all rates.
    assert float(both[0].data["loss"].std("seed").min()) > 0


@pytest.mark.integration
def test_it_prints_the_verdict_and_draws_the_curves(standard):
    lines = str(standard).splitlines()
    assert len(lines) == len(WIDTHS) + 3
    assert lines[0].split()[-3:] == ["the", "narrowest's", "costs"]
    assert lines[-1].startswith("The rate does not transfer: at width = 64 the narrowest's costs ")
    axes = standard.plot()
    assert len(axes.get_legend().get_texts()) == len(WIDTHS)
    plt.close("all")


@pytest.mark.integration
def test_an_interrupted_call_is_continued_from_its_store(tmp_path):
    first = descent(store=tmp_path / "store", widths=(16, 32), rates=RATES[:3])
    again = descent(store=tmp_path / "store", widths=(16, 32), rates=RATES[:3])
    np.testing.assert_array_equal(first.data["loss"], again.data["loss"])
    assert sorted(path.name for path in (tmp_path / "store").iterdir())[0] == "rates-0"


def parabolas(places=(3.0, 3.0, 3.0)):
    """Losses of ten seeds with the optimum at the given places of a grid of seven rates."""
    rates = 0.01 * 2.0 ** np.arange(7)
    noise = np.random.default_rng(0).normal(0, 1e-3, (3, 1, 10))
    curves = 1 + 0.1 * (np.arange(7)[None, :] - np.array(places)[:, None]) ** 2
    coords = {"width": [16, 32, 64], "rate": rates, "seed": range(10)}
    return xr.Dataset({"loss": (tuple(coords), curves[..., None] + noise)}, coords)


def test_nan_in_one_seed_at_the_narrowest_rate_is_no_transfer():
    data = parabolas()
    data["loss"][2, 3, 4] = np.nan
    found = scaling.Transfer.from_data(data, 0.01)
    assert scaling.Transfer.from_data(parabolas(), 0.01).verdict == "transfers"
    assert found.verdict == "does not transfer"
    assert "diverges at width 64 in 1 of 10 seeds" in str(found)


def test_the_cost_of_the_narrowest_rate():
    data = parabolas(places=(4.0, 3.0, 2.0))
    cost = cost_of_narrowest(data["loss"], optima_of(data["loss"], "width"))
    assert cost.dims == ("width", "seed")
    # One place off costs 0.1 of a loss of 1, two cost 0.4.
    np.testing.assert_allclose(cost.mean("seed"), [0.1, 0.4], rtol=1e-2)


def bowls(places, tilt=0.0):
    """Losses over two scalars with the optima at the given places (a, b) of grids of seven and
    five.
    """
    a, b = np.arange(7)[:, None], np.arange(5)[None, :]
    noise = np.random.default_rng(0).normal(0, 1e-3, (len(places), 1, 1, 10))
    curves = [1 + 0.1 * ((a - i) ** 2 + (b - j) ** 2 + tilt * (a - i) * (b - j)) for i, j in places]
    coords = {
        "width": [16, 32, 64][: len(places)],
        "rate": 0.01 * 2.0 ** np.arange(7),
        "gap": 0.1 * 3.0 ** np.arange(5),
    }
    coords |= {"seed": range(10)}
    return xr.Dataset({"loss": (tuple(coords), np.array(curves)[..., None] + noise)}, coords)


def test_each_of_two_scalars_is_tuned_where_the_other_is_best():
    # Tilted: at one fixed value of the other scalar the optima of both would lie elsewhere.
    found = scaling.Transfer.from_data(bowls([(4, 1), (3, 2), (2, 3)], tilt=1.0), 0.01)
    assert list(found.optima) == ["rate", "gap"]
    np.testing.assert_allclose(
        found.optima["rate"].optima, 0.01 * 2.0 ** np.array([4, 3, 2]), rtol=2e-2
    )
    np.testing.assert_allclose(
        found.optima["gap"].optima, 0.1 * 3.0 ** np.array([1, 2, 3]), rtol=2e-2
    )
    assert found.optima["rate"].exponent == pytest.approx(-1, abs=0.02)
    # (1, -1) off costs 0.1 (1 + 1 - 1), (2, -2) four times that.
    np.testing.assert_allclose(list(found.costs.values()), [0.1, 0.4], rtol=2e-2)
    assert "The rate and the gap do not transfer: at width = 64 the narrowest's costs 40 %" in str(
        found
    )
    assert found.plot(over="gap").get_xlabel() == "gap"
    with pytest.raises(ValueError, match="There is no scalar 'decay'; there are rate, gap"):
        found.plot(over="decay")
    plt.close("all")


def test_a_pair_transfers_only_if_both_scalars_do():
    assert scaling.Transfer.from_data(bowls([(4, 1), (4, 1), (4, 1)]), 0.01).verdict == "transfers"
    assert (
        scaling.Transfer.from_data(bowls([(4, 1), (4, 1), (4, 2)]), 0.01).verdict
        == "does not transfer"
    )
    assert (
        scaling.Transfer.from_data(bowls([(4, 0), (4, 0), (4, 0)]), 0.01).verdict == "not decided"
    )


@pytest.mark.integration
def test_two_scalars_are_trained_as_a_grid_that_widens_in_both():
    def decayed(rate, decay, width):
        return optax.chain(optax.add_decayed_weights(decay), optax.sgd(16 * rate / width))

    # The sum of a column moves by width times its gradient, which all its entries have in common,
    # and decays with the entries.
    grid = {"rate": (0.02, 0.04, 0.08), "decay": (0.1, 0.2, 0.4)}
    found = descent(decayed, rates=grid, widths=(16, 32), steps=2, widen=2)
    # The best rate was the largest of the grid, and the best decay the smallest.
    np.testing.assert_allclose(found.data.rate, 0.02 * 2.0 ** np.arange(5), rtol=1e-6)
    np.testing.assert_allclose(found.data.decay, 0.025 * 2.0 ** np.arange(5), rtol=1e-6)
    loss = found.data["loss"].mean("seed").sel(width=32)
    for rate in found.data.rate.values:
        for decay in found.data.decay.values:
            sums_ = np.zeros(4)
            for _ in range(2):
                sums_ = (
                    sums_ - 16 * rate * CURVATURES * (sums_ - 1) - 16 * rate / 32 * decay * sums_
                )
            expected = np.sum(CURVATURES * (sums_ - 1) ** 2) / 2
            assert float(loss.sel(rate=rate, decay=decay)) == pytest.approx(expected, rel=1e-3)


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore::specjax.sweep.EqualSeedsWarning")
def test_depths_stand_in_the_place_of_widths():
    def layers(key, depth):
        del key
        return [jnp.full((1,), 0.5) for _ in range(depth)]

    def product(model, batch):
        return (jnp.sum(jnp.prod(jnp.stack(model), axis=0)) - batch) ** 2

    def by_depth(rate, depth):
        return optax.sgd(rate / depth)

    found = scaling.transfer(
        layers,
        product,
        by_depth,
        depths=(1, 2, 3),
        rates=(0.1, 0.2, 0.4),
        batch=jnp.ones(()),
        steps=3,
        num_seeds=4,
        widen=2,
        progress=False,
    )
    for depth in (1, 2, 3):
        for rate in found.data.rate.values:
            w = np.full(depth, 0.5)
            for _ in range(3):
                w = w - rate / depth * 2 * (np.prod(w) - 1) * np.prod(w) / w
            loss = found.data["loss"].sel(depth=depth, rate=rate)
            np.testing.assert_allclose(loss, (np.prod(w) - 1) ** 2, rtol=1e-3, atol=1e-9)
    assert found.optimum.dim == "depth"
    assert "the shallowest's costs" in str(found)


WRONG_CALLS = """
widths=(16,)
    What a width changes is seen at two different ones or more, got widths=[16].
widths=16
    widths needs to be positive ints, got 16; write e.g. (2, 4).
widths=(-8, 16)
    widths needs to be positive ints, got (-8, 16); write e.g. (2, 4).
widths=None, depths=(1.0, 2.0)
    depths needs to be positive ints, got (1.0, 2.0); write e.g. (2, 4).
rates=0.1
    rates needs to be three different positive numbers or more, got 0.1; take e.g. powers of 2.
widths=(16, 16)
    What a width changes is seen at two different ones or more, got widths=[16, 16].
build=lambda key, _: sums(key, 8)
    build needs to give another model at each width, but its parameters have the same shapes at
    width 16 and at width 32; use the width that it gets.
build=lambda width: width
    build is called as build(key, width), but has the signature build(width) (too many positional
    arguments); wrap it in a lambda.
build=lambda _, width: {"w": width}
    build needs to return a tree with floating arrays, which are what is trained; at width 16 it has
    none.
loss=lambda model, _: model["w"]
    loss needs to return one number, got shape (16, 4); take the mean over the batch.
optimizer=optax.sgd(0.1)
    optimizer needs to be a function of the rate, such as optax.adam, got a
    GradientTransformationExtraArgs; write lambda rate: and what it is made of.
optimizer=lambda rate, beta: optax.sgd(rate, beta)
    optimizer gets a rate, and a width where it has an argument of that name, but has the signature
    optimizer(rate, beta) (missing a required argument: 'beta'); give the others a default, or wrap
    it in a lambda.
optimizer=lambda _: "adam"
    optimizer(rate) needs to return an optax transformation, got a str; pass e.g. optax.adam.
optimizer=lambda _: optax.GradientTransformation(lambda _: (), lambda _, state, params, value:
(state, params, value))
    An optimizer gets gradients, state and parameters, and this one asks for more (
rates=(0.1, 0.2)
    rates needs to be three different positive numbers or more, got [0.1, 0.2]; take e.g. powers of
    2.
rates=(0.1, 0.2, -1)
    rates needs to be three different positive numbers or more, got [0.1, 0.2, -1.0]; take e.g.
    powers of 2.
steps=0
    A training has one step or more and a grid is widened by 0 rates or more, got steps=0 and
    widen=8.
widths=None
    Models differ in their width or in their depth, got widths=None and depths=None; pass one.
depths=(1, 2)
    Models differ in their width or in their depth, got widths=(16, 32, 64) and depths=(1, 2); pass
    one.
rates={"rate": (0.1, 0.2, 0.4), "decay": (0.1, 0.2)}
    rates['decay'] needs to be three different positive numbers or more, got [0.1, 0.2]; take e.g.
    powers of 2.
rates={}
    rates by name needs one scalar or more, none called width, depth or seed, got []; write e.g.
    {"rate": (0.1, 0.2, 0.4)}.
rates={"rate": RATES, "decay": RATES}
    optimizer gets rate and decay by name, and a width where it has an argument of that name, but
    has the signature optimizer(learning_rate
tolerance=2
    tolerance is the share of the loss that counts, between 0 and 1, got 2; write e.g. 0.01.
batch=lambda: 0
    batch is called as batch(key), but has the signature batch() (too many positional arguments);
    wrap it in a lambda.
batch=iter([BATCH])
    batch needs to be a tree of arrays, the batch of all steps, or a function of a key, got a
    list_iterator; for batches of your data write lambda key: jax.random.choice(key, data, (64,)).
build=lambda width, key: sums(key, width)
    build is called as build(key, width), but has its arguments in the order width, key; write
    lambda key, width: build(width, key).
"""


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("arguments", "sentence"), wrong_calls(WRONG_CALLS))
def test_a_wrong_call_is_refused_before_anything_is_compiled(arguments, sentence):
    given = {
        "build": sums,
        "loss": quadratic,
        "optimizer": optax.sgd,
        "widths": WIDTHS,
        "rates": RATES,
        "batch": BATCH,
        "steps": 1,
    }
    given |= eval(f"dict({arguments})")
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        scaling.transfer(**given)
    assert str(refused.value).startswith(sentence)


@pytest.mark.usefixtures("unchecked")
def test_errors_of_user_functions_say_how_they_were_called():
    def swapped(x, y):
        return quadratic(y, x)

    def with_warmup(rate):
        return optax.sgd(optax.warmup_cosine_decay_schedule(0.0, rate, 2, 4))

    given = {"widths": WIDTHS, "rates": RATES, "batch": BATCH, "steps": 1}
    called = (
        "This was raised at width 16 in one of build(key, width), loss(model, batch) and"
        " optimizer(rate)."
    )
    with pytest.raises((TypeError, IndexError)) as raised:
        scaling.transfer(sums, swapped, optax.sgd, **given)
    assert raised.value.__notes__[-1] == called
    with pytest.raises(jax.errors.TracerBoolConversionError) as raised:
        scaling.transfer(sums, quadratic, with_warmup, **given)
    assert raised.value.__notes__[-1].startswith(f"{called} The rate is a traced array there")
    assert raised.value.__notes__[-1].endswith(
        "lambda rate: optax.adam(lambda step: rate * schedule(step))."
    )


@pytest.mark.integration
def test_a_schedule_of_peak_one_is_multiplied_by_the_rate():
    def schedule(step):
        return jnp.where(step < 1, 0.25, 1.0)

    found = descent(
        lambda rate: optax.sgd(lambda step: rate * schedule(step)),
        widths=(16, 32),
        steps=3,
        widen=0,
    )
    sums_ = np.zeros(4)
    for step in range(3):
        sums_ = sums_ - 16 * RATES[0] * float(schedule(step)) * CURVATURES * (sums_ - 1)
    loss = found.data["loss"].sel(width=16, rate=RATES[0])
    np.testing.assert_allclose(loss, np.sum(CURVATURES * (sums_ - 1) ** 2) / 2, rtol=1e-3)
