"""Whatever befalls checkpoints: a training goes on from a whole one and ends with the same bits, or
one sentence says why it cannot.
"""

import json
import os
import random
import shutil
import tempfile
import warnings
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from specjax.resume import StoreError
from specjax.training import Checkpoints, DamagedCheckpointWarning, train, train_steps
from tests.mutations import MUTATIONS, mutated, outside, sentence, snapshot

pytestmark = pytest.mark.integration

CONFIGURATION = {
    "seed": 0,
    "rate": float("nan"),
    "widths": (2, 3),
    "scale": np.float32(0.1),
    "clip": None,
    "deep": {"a": [1, (2,)]},
}
STEPS = 3


def squared(p, batch):
    return jnp.mean((p["w"] - batch) ** 2)


def batch_of(step):
    return jax.random.normal(jax.random.fold_in(jax.random.key(0), step), (4,))


def trained(
    folder,
    *,
    steps=STEPS,
    loss=squared,
    batch=batch_of,
    configuration=CONFIGURATION,
    every=1,
    progress=None,
):
    return train(
        loss,
        {"w": jnp.linspace(0.0, 1.0, 4)},
        batch,
        optax.trace(0.9),
        steps=steps,
        every=every,
        record=lambda p, _: p,
        checkpoints=Checkpoints(folder, configuration),
        progress=progress,
    )


def quick(folder):
    """What `train` does with checkpoints, for many of them: a tree of arrays that a step
    changes.
    """
    checkpoints, like = Checkpoints(folder, {"seed": 0}), {"w": jnp.zeros(50), "step": jnp.int32(0)}
    with checkpoints.writing():
        run = checkpoints.latest(like)
        first = int(run["step"])
        for step in range(first + 1, STEPS + 1):
            run = {"w": run["w"] + 0.1 * jnp.arange(50.0), "step": jnp.int32(step)}
            checkpoints.save(step, run)
    return run, first


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    run, _ = quick(folder)
    return folder, run


@mutated
@pytest.mark.parametrize("seed", range(3))
def test_a_changed_checkpoint_is_continued_right_or_refused(mutation, seed, whole, tmp_path):
    folder, right = tmp_path / "run", whole[1]
    outside(tmp_path)
    shutil.copytree(whole[0], folder)
    MUTATIONS[mutation](folder, random.Random(seed))
    before = snapshot(tmp_path, but=folder)
    with warnings.catch_warnings(record=True, action="always") as reported:
        try:
            run, first = quick(folder)
        except (StoreError, ValueError) as error:
            assert str(folder) in sentence(error)  # noqa: PT017 - or it is continued
        else:
            jax.tree.map(np.testing.assert_array_equal, run, right)
            assert first >= STEPS - 1
    for warning in reported:
        if warning.category is DamagedCheckpointWarning:
            assert f"of step {STEPS} in {folder} is damaged" in sentence(warning.message)
    assert snapshot(tmp_path, but=folder) == before


@pytest.mark.parametrize(
    "damage", ["arrays", "older arrays", "description", "emptied", "gone", "link"]
)
def test_a_damaged_checkpoint_is_set_aside_for_the_one_before(damage, whole, tmp_path):
    folder, right = shutil.copytree(whole[0], tmp_path / "run"), whole[1]
    newest = folder / str(STEPS)
    if damage == "arrays":
        for file in newest.glob("run/d/*"):
            content = bytearray(file.read_bytes())
            content[len(content) // 2] ^= 4
            file.write_bytes(content)
    elif (
        damage == "older arrays"
    ):  # whole, but of another step: by orbax's own checks nothing is wrong
        shutil.rmtree(newest / "run")
        shutil.copytree(folder / "2" / "run", newest / "run")
    elif damage == "description":
        file = newest / "description" / "metadata"
        file.write_text(file.read_text().replace('"seed": 0', '"seed": 1'))
    elif damage == "emptied":
        shutil.rmtree(newest / "run")
    elif damage == "gone":
        shutil.rmtree(newest)
    else:
        newest.rename(tmp_path / "away")
        newest.symlink_to(tmp_path / "away")
    reported = (
        rf"^The checkpoint of step 3 in {folder} is damaged, and kept as damaged-3; the training"
        r" goes on from that of step 2\.$"
    )
    if damage == "gone":
        run, first = quick(folder)
    else:
        with pytest.warns(DamagedCheckpointWarning, match=reported):
            run, first = quick(folder)
        assert (folder / "damaged-3").exists()
    assert first == 2
    jax.tree.map(np.testing.assert_array_equal, run, right)
    assert quick(folder)[1] == 3


def test_two_swapped_checkpoints_are_refused_and_left_alone(whole, tmp_path):
    folder = shutil.copytree(whole[0], tmp_path / "run")
    for one, other in (("3", "x"), ("2", "3"), ("x", "2")):
        (folder / one).rename(folder / other)
    reported = (
        rf"None of the checkpoints in {folder} can be read \(step 3: it is that of step 2; step 2:"
        r" it is that of step 3\); delete"
    )
    with pytest.raises(StoreError, match=reported):
        quick(folder)
    assert {path.name for path in folder.iterdir()} == {"2", "3", "lock"}


def test_of_an_earlier_version_a_checkpoint_is_read_as_it_is(tmp_path, monkeypatch):
    """It has no checksums, and says neither its step nor what it was made by."""
    checkpoints = Checkpoints(tmp_path / "run", {"seed": 0})
    args = checkpoints._orbax.args

    def old(described):
        return save(
            {"configuration": described["configuration"], "arrays": list(described["arrays"])}
        )

    save = args.JsonSave
    with monkeypatch.context() as patch:
        patch.setattr(args, "JsonSave", old)
        checkpoints.save(3, {"w": jnp.arange(3.0)})
    written = json.loads((tmp_path / "run" / "3" / "description" / "metadata").read_text())
    assert written == {"configuration": {"seed": 0}, "arrays": ["['w'] float32[3]"]}
    found = Checkpoints(tmp_path / "run", {"seed": 0}).latest({"w": jnp.zeros(3)})
    np.testing.assert_array_equal(found["w"], np.arange(3.0))


def test_a_configuration_is_the_same_if_its_values_are(tmp_path):
    first = trained(tmp_path)
    taken = []
    same = {
        **CONFIGURATION,
        "seed": 0.0,
        "widths": [2, np.int64(3)],
        "scale": float(np.float32(0.1)),
    }
    again = trained(tmp_path, configuration=same, progress=taken.append)
    assert taken == []
    np.testing.assert_array_equal(again.params["w"], first.params["w"])
    changes = {
        "rate": 0.1,
        "widths": (3, 2),
        "scale": 0.1,
        "clip": 0,
        "deep": {"a": [1, (3,)]},
        "new": None,
    }
    for name, value in changes.items():
        with pytest.raises(
            ValueError,
            match=rf"is of a training with {name}=.*, not .*; take another folder for this one\.",
        ):
            trained(tmp_path, configuration={**CONFIGURATION, name: value})
    with pytest.raises(ValueError, match=r"with clip=None, not absent; take another folder"):
        trained(
            tmp_path,
            configuration={name: value for name, value in CONFIGURATION.items() if name != "clip"},
        )
    with pytest.raises(
        ValueError,
        match=r"has data=PosixPath\('x'\), of type PosixPath; give numbers, texts, or lists",
    ):
        Checkpoints(tmp_path / "other", {"data": Path("x")})


def test_another_loss_and_other_data_are_refused(tmp_path):
    def renamed(params, rows):
        return squared(params, rows)

    first = trained(tmp_path, steps=2)
    for batch in (batch_of, partial(batch_of)):
        run = trained(tmp_path, steps=2, loss=renamed, batch=batch)
        np.testing.assert_array_equal(run.params["w"], first.params["w"])
    with pytest.raises(
        ValueError, match="is of a training with another loss; take another folder for this one"
    ):
        trained(tmp_path, steps=2, loss=lambda p, batch: 2 * squared(p, batch))
    data = jnp.ones(4)
    for batch in (lambda step: 2 * batch_of(step), lambda step: batch_of(step) * data):
        with pytest.raises(
            ValueError,
            match="is of a training with another batch; take another folder for this one",
        ):
            trained(tmp_path, steps=2, batch=batch)


def test_steps_on_other_batches_are_refused(tmp_path):
    """Of which the last that was taken is compared: a loader that goes on where it stopped is
    noticed.
    """

    def steps(batches):
        options = {"steps": 4, "every": 2, "checkpoints": Checkpoints(tmp_path, {})}
        return train_steps(lambda w, batch: (w + batch.sum(), w), jnp.zeros(()), batches, **options)

    batches = np.arange(8.0, dtype=np.float32).reshape(4, 2)

    def interrupted():
        yield from batches[:3]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        steps(interrupted())
    with pytest.raises(
        ValueError,
        match="is of a training with another last batch; take another folder for this one",
    ):
        steps(np.concatenate([batches[2:], batches]))
    assert float(steps(batches).state) == batches.sum()


def test_a_folder_has_one_training_at_a_time(tmp_path):
    def second(_):
        with pytest.raises(
            StoreError,
            match=r"\(another process is writing there, or an earlier call in this one\)",
        ):
            trained(tmp_path)

    assert int(trained(tmp_path, progress=second).step) == STEPS
    assert int(trained(tmp_path).step) == STEPS


@pytest.mark.parametrize("name", ["run[1]", "a*", "what?/run"])
def test_a_folder_that_orbax_reads_as_a_pattern_is_refused(name, tmp_path):
    with pytest.raises(
        ValueError, match=r"because orbax reads .* in a path as a pattern; choose another folder"
    ):
        Checkpoints(tmp_path / name, {})
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_refused_in_a_sentence(tmp_path):
    (tmp_path / "file").write_text("mine")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(
            StoreError,
            match=rf"The folder {folder} cannot be used \(.*\); its checkpoints are intact",
        ):
            Checkpoints(folder, {})


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0,
    reason="only root becomes another user for a while",
)
def test_a_finished_training_is_read_from_a_read_only_disk(whole):
    # Not tmp_path, whose parents only their owner may enter.
    with tempfile.TemporaryDirectory() as name:
        folder = shutil.copytree(whole[0], Path(name) / "run")
        for path in (Path(name), folder, *folder.rglob("*")):
            path.chmod(0o555)
        os.seteuid(65534)
        try:
            checkpoints = Checkpoints(folder, {"seed": 0})
            with checkpoints.writing():
                run = checkpoints.latest(jax.tree.map(jnp.zeros_like, whole[1]))
                with pytest.raises(
                    StoreError,
                    match=r"cannot be used \(Permission denied\); its checkpoints are intact",
                ):
                    checkpoints.require_writable()
        finally:
            os.seteuid(0)
        jax.tree.map(np.testing.assert_array_equal, run, whole[1])
        for path in (Path(name), folder, *folder.rglob("*")):
            path.chmod(0o755)
