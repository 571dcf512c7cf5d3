"""Texts: loading them, sampling batches, and refused arguments."""

import hashlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.training import text


def test_the_help_of_python_is_english_prose():
    found = text.load()
    assert len(found.train) > 300_000
    assert len(found.train) / (len(found.train) + len(found.validation)) == pytest.approx(
        0.9, abs=1e-5
    )
    whole = found.train.tobytes() + found.validation.tobytes()
    assert b'The "while" statement is used for repeated execution' in whole
    # Records name losses on just this text, that of Python 3.11.7.
    assert (
        hashlib.sha256(whole).hexdigest()
        == "2a95af4ac93f5b719944030ce3769070ddf827d847cba42192afa8da989e5dc4"
    )


def test_a_file_is_cut_into_training_and_validation(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(bytes(range(200)))
    found = text.load(path, held_out=0.25)
    assert found.train.tolist() == list(range(150))
    assert found.validation.tolist() == list(range(150, 200))


def test_draws_are_stretches_from_anywhere():
    data = jnp.arange(20, dtype=jnp.uint8)
    drawn = np.asarray(text.sample_batch(data, jax.random.key(0), 2000, 4))
    assert drawn.shape == (2000, 5)
    assert (np.diff(drawn) == 1).all()
    counts = np.bincount(drawn[:, 0], minlength=16)
    assert len(counts) == 16  # starts 0 to 15: the last stretch ends with the last byte
    assert np.sum((counts - 125) ** 2 / 125) < 15 + 4 * np.sqrt(30)


def test_validation_stretches_reach_from_first_to_last_byte():
    data = np.arange(50, dtype=np.uint8)
    cut = text.stretches(data, 4, 9)
    assert cut[0, 0] == 0
    assert cut[-1, -1] == 49
    assert (np.diff(cut) == 1).all()


def test_unigram_entropy_by_hand():
    assert text.unigram_entropy(np.frombuffer(b"aabc", np.uint8)) == pytest.approx(1.5 * np.log(2))


def test_what_cannot_be_read_is_told_in_a_sentence(tmp_path):
    empty, short = tmp_path / "empty", tmp_path / "short"
    empty.write_bytes(b"")
    short.write_bytes(b"x")
    refused = [
        (
            tmp_path / "none",
            (
                rf"The text {tmp_path / 'none'} cannot be read \(No such file or directory\); give"
                r" the path of a text file\."
            ),
        ),
        (tmp_path, r"cannot be read \(Is a directory\); give the path"),
        (empty, r"is empty; give a file with some text in it\."),
        (short, r"has 1 bytes, too few for a training and a validation part\."),
    ]
    for path, sentence in refused:
        with pytest.raises(ValueError, match=sentence):
            text.load(path)
    with pytest.raises(ValueError, match=r"held_out must lie between 0 and 1, got 1\."):
        text.load(held_out=1.0)
    with pytest.raises(
        ValueError, match=r"Stretches of 20 bytes and the next one cannot be cut from 20 bytes"
    ):
        text.sample_batch(jnp.zeros(20, jnp.uint8), jax.random.key(0), 1, 20)
