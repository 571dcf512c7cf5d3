"""The training loop: what it computes, that it resumes bit for bit, and how it stops."""

import sys
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import Mesh

from specjax import optim, resume
from specjax.models import transformer
from specjax.models.transformer import Architecture, Sequences
from specjax.training import Checkpoints, Diverged, train

pytestmark = pytest.mark.integration

ARCHITECTURE = Architecture(7, 8, 6, activation="relu_squared")
OPTIMIZER = optim.jordan_muon(
    lambda count: 0.05 * (1 - count.astype(float) / 12),
    labels=transformer.labels,
    muon_weight_dimension_numbers=optim.OUT_IN,
)
STEPS, EVERY = 12, 4


@cache
def model():
    return jax.jit(lambda key: transformer.init(key, ARCHITECTURE))(jax.random.key(0))


def batch(step):
    return Sequences(jax.random.randint(jax.random.fold_in(jax.random.key(1), step), (8, 7), 0, 7))


def record(model, step):
    return {"validation": transformer.loss(model, batch(10**6)), "step": step}


def trained(optimizer=OPTIMIZER, params=None, **options):
    return train(
        transformer.loss,
        model() if params is None else params,
        options.pop("batch", batch),
        optimizer,
        steps=STEPS,
        every=EVERY,
        record=record,
        **options,
    )


@pytest.fixture(scope="module")
def whole():
    return trained()


def small(loss, params, optimizer, steps=1, rows=1, **options):
    """A few steps on batches of ones."""
    batch = jnp.ones(rows)
    return train(
        loss,
        params,
        lambda _: batch,
        optimizer,
        steps=steps,
        every=steps,
        record=lambda *_: {},
        **options,
    )


def same_bits(a, b):
    return all(
        np.array_equal(x, y, equal_nan=True)
        for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    )


def test_a_run_is_that_of_a_plain_loop(whole):
    @jax.jit
    def moved(params, state, batch):
        loss, gradient = jax.value_and_grad(transformer.loss)(params, batch)
        updates, state = OPTIMIZER.update(gradient, state, params)
        return optax.apply_updates(params, updates), state, loss

    params, state, losses, validation = model(), jax.jit(OPTIMIZER.init)(model()), [], []
    drawn, loss_of = jax.jit(batch), jax.jit(transformer.loss)
    for step in range(STEPS):
        if step % EVERY == 0:
            validation.append(loss_of(params, drawn(10**6)))
        params, state, loss = moved(params, state, drawn(step))
        losses.append(loss)
    validation.append(loss_of(params, drawn(10**6)))
    np.testing.assert_allclose(whole.losses, losses, rtol=1e-4)
    np.testing.assert_allclose(whole.records["validation"], validation, rtol=1e-4)
    assert whole.records["step"].tolist() == [0, 4, 8, 12]
    assert int(whole.step) == STEPS
    assert losses[-1] < losses[0] - 0.05


def test_progress_is_a_line_for_each_record(capsys):
    """Without a function of the records, too."""
    train(
        lambda w, x: jnp.sum((w - x) ** 2),
        jnp.zeros(2),
        lambda _: jnp.ones(2),
        optax.sgd(0.1),
        steps=4,
        every=2,
        progress=True,
    )
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(",")[0] for line in lines] == ["step 2 of 4", "step 4 of 4"]


def test_a_stopped_training_resumes_bit_for_bit(whole, tmp_path):
    class Stopped(Exception):
        pass

    def stop(run):
        if int(run.step) == 8:
            raise Stopped

    with pytest.raises(Stopped):
        trained(checkpoints=Checkpoints(tmp_path, {"seed": 0}), progress=stop)
    steps = []
    resumed = trained(
        checkpoints=Checkpoints(tmp_path, {"seed": 0}),
        progress=lambda run: steps.append(int(run.step)),
    )
    assert steps == [12]
    assert same_bits(resumed, whole)
    again = trained(
        checkpoints=Checkpoints(tmp_path, {"seed": 0}),
        progress=lambda run: steps.append(int(run.step)),
    )
    assert steps == [12]
    assert same_bits(again, whole)
    with pytest.raises(
        ValueError, match=r"is of a training with seed=0, not 1; take another folder for this one\."
    ):
        trained(checkpoints=Checkpoints(tmp_path, {"seed": 1}))
    shapes = jax.eval_shape(
        lambda: transformer.init(
            jax.random.key(0), Architecture(7, 16, 6, activation="relu_squared")
        )
    )
    larger = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    with pytest.raises(
        ValueError,
        match=(
            r"has \.params\.embedding float32\[7, 8\], .* and \d+ more, where this training has"
            r" .*\[7, 16\], "
        ),
    ):
        trained(params=larger, checkpoints=Checkpoints(tmp_path, {"seed": 0}))


def interrupted(at):
    """A progress that is stopped by Ctrl-C at a step, and the steps that it has seen."""
    seen = []

    def progress(run):
        seen.append(int(run.step))
        if seen[-1] == at:
            raise KeyboardInterrupt

    return progress, seen


@pytest.mark.slow
def test_a_training_is_kept_without_checkpoints_of_its_own(whole, tmp_path):
    stop, _ = interrupted(at=8)
    go_on, seen = interrupted(at=None)
    with resume.enabled(tmp_path):
        with pytest.raises(KeyboardInterrupt):
            trained(progress=stop)
        resumed = trained(progress=go_on)
        assert seen == [12]
        assert same_bits(resumed, whole)
        # Other weights, another optimizer or other batches are other trainings.
        for other in (
            {"params": transformer.init(jax.random.key(5), ARCHITECTURE)},
            {"optimizer": optax.sgd(0.1)},
            {"optimizer": optax.sgd(0.2)},
            {"batch": lambda step: batch(step + 1)},
        ):
            go_on, seen = interrupted(at=None)
            trained(**other, progress=go_on)
            assert seen == [4, 8, 12]
    assert len(list(tmp_path.iterdir())) == 5


def test_without_orbax_a_training_is_not_kept_and_says_so(whole, tmp_path, monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "orbax", None)
    with resume.enabled(tmp_path):
        assert same_bits(trained(), whole)
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [
        "this training is not kept while it runs, because orbax is missing: pip install"
        " orbax-checkpoint"
    ]
    assert list(tmp_path.iterdir()) == []


def test_microbatches_have_the_gradient_of_the_whole(whole):
    parts = trained(microbatches=4)
    np.testing.assert_allclose(parts.losses, whole.losses, rtol=1e-3)
    assert not same_bits(parts.losses, whole.losses)


@pytest.mark.parametrize(
    ("dtype", "parts"), [("bfloat16", 1024), ("float16", 4096), ("float32", 4)]
)
def test_microbatch_means_do_not_depend_on_parameter_precision(dtype, parts):
    """Ones, added one after the other, are 256 in bfloat16 and 2048 in float16 however many they
    are.
    """
    run = small(
        lambda w, x: (w - 1) * jnp.mean(x).astype(w.dtype),
        jnp.zeros((), dtype),
        optax.sgd(1.0),
        rows=parts,
        microbatches=parts,
    )
    assert run.params.dtype == dtype
    assert float(run.params) == -1
    assert float(run.losses[0]) == -1


@pytest.mark.parametrize(
    ("dtype", "slope"), [("float16", 300.0), ("bfloat16", 1e20), ("float32", 1e20)]
)
def test_a_large_gradient_is_finite(dtype, slope):
    """Its square is not."""
    run = small(
        lambda w, x: slope * jnp.sum(w) * jnp.mean(x).astype(w.dtype),
        jnp.zeros(2, dtype),
        optax.sgd(1.0),
    )
    np.testing.assert_array_equal(run.params, jnp.full(2, -slope, dtype))


def test_a_run_stops_where_it_stops_being_finite():
    """The optimizer's sixth update is infinite, so that step 6 would begin with parameters that are
    not finite.
    """
    sixth = optax.sgd(lambda count: jnp.where(count == 5, jnp.inf, 0.1))
    with pytest.raises(
        Diverged, match=r"finite at step 6, first in the parameter embedding; lower"
    ) as diverged:
        trained(optimizer=sixth)
    run = diverged.value.run
    assert int(run.step) == 6
    assert np.isfinite(run.losses[:6]).all()
    plain = trained(optimizer=optax.sgd(0.1))
    np.testing.assert_allclose(run.losses[:6], plain.losses[:6], rtol=1e-5)
    assert run.records["step"].tolist() == [0, 4, 0, 0]


@pytest.mark.parametrize("broken", ["seen", "unseen"])
@pytest.mark.parametrize("last", [3, 4])
def test_non_finite_parameters_are_found_without_a_later_loss(last, broken):
    """After the last step of all there is none, and some parameters it does not see."""
    decay = optax.chain(
        optax.add_decayed_weights(1.0),
        optax.sgd(lambda count: jnp.where(count == last - 1, jnp.inf, 0.1)),
    )
    labels = {name: "decay" if name == broken else "sgd" for name in ("seen", "unseen")}
    optimizer = optax.partition({"sgd": optax.sgd(0.1), "decay": decay}, labels)
    with pytest.raises(
        Diverged, match=rf"finite at step {last}, first in the parameter {broken}; lower"
    ) as found:
        small(
            lambda w, x: jnp.mean(x) * w["seen"],
            {"seen": jnp.ones(()), "unseen": jnp.ones(2)},
            optimizer,
            steps=4,
        )
    assert int(found.value.run.step) == last
    assert not bool(found.value.run.finite)


def test_what_only_one_microbatch_lacks_is_found_in_it():
    """A mean over what counts is 0/0 where nothing does; that of the whole batch is finite."""
    counted = jnp.asarray([1.0, 1.0, 0.0])
    with pytest.raises(Diverged, match=r"finite at step 0, first in the loss; lower"):
        train(
            lambda w, x: w * jnp.sum(x) / jnp.sum(x),
            jnp.ones(()),
            lambda _: counted,
            optax.sgd(0.1),
            steps=1,
            every=1,
            record=lambda *_: {},
            microbatches=3,
        )


def test_what_cannot_be_trained_is_refused():
    with pytest.raises(
        ValueError, match=r"a positive multiple of every, got steps=12 and every=5\."
    ):
        train(transformer.loss, model(), batch, OPTIMIZER, steps=12, every=5, record=record)
    with pytest.raises(
        ValueError, match=r"a multiple of microbatches=3 times 1 devices, got \[8\]\."
    ):
        trained(microbatches=3)
    for leaves in (
        jnp.zeros(()),
        jnp.zeros((0, 2)),
        {},
        {"a": jnp.zeros((4, 1)), "b": jnp.zeros(2)},
    ):
        with pytest.raises(
            ValueError,
            match=r"^All leaves of a batch need the same leading axis, a multiple of .*\.$",
        ):
            trained(batch=lambda _, leaves=leaves: leaves)
    with pytest.raises(ValueError, match=r'needs the axis "data", got \(\'model\',\)\.$'):
        trained(mesh=Mesh(np.array(jax.devices()), ("model",)))
