"""In-context recall: what sequences look like, that their laws are the ones of the paper, and that
copying solves the task.
"""

from itertools import combinations, permutations
from math import comb

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.models import recall, transformer
from specjax.models.recall import Recall
from specjax.models.transformer import Blocks, Transformer
from specjax.sizes import Size

N, T = 6, 10
TASK = Recall(items=N, length=T)
SEQUENCES = 20_000
TRIGGER, OUTPUT = 1.0, 1.5


def law(exponent, n=N):
    weights = np.arange(1, n + 1) ** -float(exponent)
    return weights / weights.sum()


def agree(counts, total, p):
    """Whether all frequencies are within four standard errors of p."""
    p = np.asarray(p)
    return np.all(np.abs(np.asarray(counts) / total - p) < 4 * np.sqrt(p * (1 - p) / total))


@pytest.fixture(scope="module")
def drawn():
    draw = jax.jit(
        lambda trigger, output: recall.sample(jax.random.key(0), TASK, SEQUENCES, trigger, output)
    )
    return jax.tree.map(np.asarray, draw(TRIGGER, OUTPUT))


@pytest.fixture(scope="module")
def bigrams(drawn):
    """Of every sequence: the four places of its triggers, the triggers there, and the tokens behind
    them.
    """
    tokens = drawn.tokens
    starts = np.array([np.flatnonzero(row < N) for row in tokens])
    triggers = np.take_along_axis(tokens, starts, 1)
    outputs = np.take_along_axis(tokens, starts + 1, 1)
    return starts, triggers, outputs


def test_every_trigger_has_its_output_and_all_else_is_noise(drawn, bigrams):
    starts, triggers, outputs = bigrams
    assert drawn.tokens.shape == (SEQUENCES, T)
    assert starts.shape == (SEQUENCES, 4)
    assert drawn.tokens.max() < 2 * N
    assert outputs.min() >= N
    assert np.all(np.diff(starts) >= 2)
    ordered = np.sort(triggers)
    assert np.all(
        (ordered[:, 0] == ordered[:, 1])
        & (ordered[:, 2] == ordered[:, 3])
        & (ordered[:, 1] < ordered[:, 2])
    )
    for trigger, output in zip(triggers[:2000], outputs[:2000], strict=True):
        assert len(set(zip(trigger, output, strict=True))) == 2


def test_what_counts_is_every_later_output_of_a_trigger(drawn):
    for tokens, counted in zip(drawn.tokens[:2000], drawn.counted[:2000], strict=True):
        assert [t for t in range(T - 1) if counted[t]] == [
            t for t in range(T - 1) if tokens[t] < N and tokens[t] in tokens[:t]
        ]
    assert np.all(drawn.counted.sum(1) == 2)


def test_pairs_of_triggers_are_draws_without_replacement(bigrams):
    triggers = np.sort(bigrams[1])[:, [0, -1]]
    pairs = list(combinations(range(N), 2))
    counts = [np.sum(np.all(triggers == pair, axis=1)) for pair in pairs]
    p = law(TRIGGER)
    assert agree(
        counts, SEQUENCES, [p[i] * p[j] / (1 - p[i]) + p[i] * p[j] / (1 - p[j]) for i, j in pairs]
    )
    # Not independent samples that happen to differ, nor the law of another exponent.
    assert not agree(counts, SEQUENCES, [2 * p[i] * p[j] / (1 - p @ p) for i, j in pairs])


def test_outputs_follow_their_law_and_noise_is_uniform(drawn, bigrams):
    _, triggers, outputs = bigrams
    smaller = np.sort(triggers)[:, :1]
    first = outputs[np.arange(SEQUENCES), (triggers == smaller).argmax(1)] - N
    second = outputs[np.arange(SEQUENCES), (triggers != smaller).argmax(1)] - N
    p = law(OUTPUT)
    joint = np.zeros((N, N))
    np.add.at(joint, (first, second), 1)
    assert agree(joint, SEQUENCES, np.outer(p, p))
    assert not agree(joint, SEQUENCES, np.outer(law(OUTPUT + 0.05), law(OUTPUT + 0.05)))
    follows = np.pad(drawn.tokens < N, ((0, 0), (1, 0)))[:, :-1]
    noise = drawn.tokens[~follows & (drawn.tokens >= N)] - N
    assert noise.size == SEQUENCES * (T - 8)
    assert agree(np.bincount(noise), noise.size, np.full(N, 1 / N))


def test_all_placements_are_equally_likely(bigrams):
    starts, triggers, _ = bigrams
    places, counts = np.unique(starts, axis=0, return_counts=True)
    assert len(places) == comb(T - 4, 4)
    assert agree(counts, SEQUENCES, np.full(len(places), 1 / len(places)))
    # And so are the six orders, whichever trigger is the more frequent.
    orders, counts = np.unique(
        triggers == triggers.min(1, keepdims=True), axis=0, return_counts=True
    )
    assert len(orders) == len(set(permutations([0, 0, 1, 1])))
    assert agree(counts, SEQUENCES, np.full(6, 1 / 6))


def test_sizes_may_be_padded_and_batches_start_larger_ones(drawn):
    def draw(trigger, items, batch):
        padded = Recall(Size(8, items), T)
        return recall.sample(jax.random.key(0), padded, Size(7, batch), trigger, OUTPUT)

    tokens, counted = jax.tree.map(np.asarray, jax.jit(draw)(TRIGGER, N, 5))
    np.testing.assert_array_equal(np.where(tokens < 8, tokens, tokens - 8 + N), drawn.tokens[:7])
    np.testing.assert_array_equal(counted[:5], drawn.counted[:5])
    assert not counted[5:].any()


@pytest.mark.integration
def test_copying_is_right_and_two_attention_blocks_can_copy(drawn):
    batch = jax.tree.map(lambda leaf: jnp.asarray(leaf[:500]), drawn)
    found = np.asarray(jax.vmap(recall.oracle)(batch.tokens))
    for tokens, predicted in zip(np.asarray(batch.tokens[:100]), found, strict=False):
        for t in range(T):
            earlier = [s for s in range(t) if tokens[s] == tokens[t]]
            assert predicted[t] == (tokens[earlier[-1] + 1] if earlier else -1)
    assert np.all((found[:, :-1] == drawn.tokens[:500, 1:])[drawn.counted[:500]])

    @jax.jit
    def accuracies(batch):
        model = recall.induction_head(TASK)
        # If its second block does not attend by what came before, it copies the most frequent item.
        forgetful = eqx.tree_at(lambda m: m.blocks.key, model, model.blocks.key.at[1].set(0))
        copies = jax.tree.map(lambda *leaves: jnp.stack(leaves), model, forgetful)
        return jax.vmap(lambda m: transformer.accuracy(m, batch))(copies), recall.memory_recall(
            model, TASK
        )

    (copied, guessed), recalled = accuracies(batch)
    assert (float(copied), float(recalled)) == (1, 1)
    assert float(guessed) < 0.8


def test_memory_recall_is_what_its_formula_says():
    rng = np.random.default_rng(1)

    def draw(*shape):
        return jnp.asarray(rng.standard_normal(shape), jnp.float32)

    for project, tied in ((False, False), (True, True)):
        weights = Blocks(
            *draw(3, 2, 9, 9),
            output=draw(2, 9, 9) if project else None,
            up=None,
            gate=None,
            down=None,
        )
        model = Transformer(
            draw(2 * N, 9), draw(T, 9), weights, None if tied else draw(2 * N, 9), 1, None
        )
        value = np.asarray(model.blocks.value[1])
        if project:
            value = np.asarray(model.blocks.output[1]) @ value
        embedding = np.asarray(model.embedding)
        head = embedding if tied else np.asarray(model.head)
        right = [
            max(range(N, 2 * N), key=lambda w, v=v: head[w] @ value @ embedding[v]) == v
            for v in range(N, 2 * N)
        ]
        assert float(recall.memory_recall(model, TASK)) == pytest.approx(np.mean(right))
        padded = Recall(Size(N, 4), T)
        right = [
            max(range(N, N + 4), key=lambda w, v=v: head[w] @ value @ embedding[v]) == v
            for v in range(N, N + 4)
        ]
        assert float(recall.memory_recall(model, padded)) == pytest.approx(np.mean(right))


@pytest.mark.parametrize(
    ("sizes", "sentence"),
    [
        (
            {"triggers": 0},
            "Recall needs triggers of at least 1 and repeats of at least 2, got 0 and 2.",
        ),
        (
            {"repeats": 1},
            "Recall needs triggers of at least 1 and repeats of at least 2, got 2 and 1.",
        ),
        ({"items": 1}, "so items must be at least 2, got 1."),
        ({"length": 7}, "needs a length of at least 8, got 7."),
    ],
)
def test_impossible_sizes_are_refused(sizes, sentence):
    with pytest.raises(ValueError, match=sentence.replace(".", r"\.")):
        Recall(**({"items": 4} | sizes))
