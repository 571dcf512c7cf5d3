"""The transformer against one in numpy, padding, its loss and its labels."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.special import log_softmax

from specjax import optim
from specjax.models import transformer
from specjax.models.transformer import Architecture, Blocks, Sequences
from specjax.programs import trace
from specjax.sizes import Size, normal
from tests.reference import transformer as reference
from tests.wrong_calls import wrong_calls

KEY = jax.random.key(0)


def some_weights(architecture):
    """A model in numpy with numbers of their own for all weights, those that start equal too, as
    large as at the start.
    """
    draw = np.random.default_rng(0).standard_normal
    return jax.tree.map(
        lambda x: draw(x.shape, np.float32) / np.float32(x.shape[-1]) ** 0.5, shapes(architecture)
    )


def shapes(architecture):
    return eqx.filter_eval_shape(transformer.init, KEY, architecture)


@pytest.mark.integration
@pytest.mark.parametrize(
    "choices",
    [
        {"heads": 2, "activation": "relu_squared"},
        {"activation": "swiglu", "tied": True, "blocks": 3},
        {"heads": 4, "activation": "gelu", "project": False},
        {"activation": None},
        {"rotary": True},
        {"rotary": True, "heads": 2, "qk_norm": True},
        {"qk_norm": True, "heads": 2},
        {"value_tables": 2, "blocks": 5, "heads": 2},
        {"skips": True, "blocks": 6},
        {"cap": 0.7},
        {
            "rotary": True,
            "qk_norm": True,
            "value_tables": 1,
            "skips": True,
            "cap": 15.0,
            "blocks": 4,
            "heads": 2,
        },
    ],
)
def test_logits_are_those_of_a_transformer_in_numpy(choices):
    architecture = Architecture(11, 16 if "rotary" in choices else 8, 7, **choices)
    model, tokens = some_weights(architecture), np.array([3, 0, 10, 3, 5])
    expected, _ = reference.forward(model, tokens)
    found = eqx.filter_jit(lambda m, t: m(t))(model, tokens)
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)
    assert np.std(expected) > 0.1


@pytest.mark.integration
def test_entries_are_standard_normal_over_the_root_of_the_fan_in():
    model = transformer.init(KEY, Architecture(500, 64, 300, blocks=4, activation="swiglu"))
    fan_ins = {"query": 64, "key": 64, "value": 64, "output": 64, "up": 64, "gate": 64, "down": 256}
    model = jax.tree.map(np.asarray, model)
    leaves = {name: getattr(model.blocks, name) * fan_in**0.5 for name, fan_in in fan_ins.items()}
    leaves |= {"embedding": model.embedding, "positions": model.positions, "head": model.head * 8}
    for name, x in leaves.items():
        assert abs(float(np.mean(x**2)) - 1) < 4 * np.sqrt(2 / x.size), name
    drawn = np.concatenate([np.ravel(x)[:4096] for x in leaves.values()])
    correlations = np.corrcoef(drawn.reshape(len(leaves), -1)) - np.eye(len(leaves))
    assert np.abs(correlations).max() < 5 / np.sqrt(4096)  # no two are the same samples


@pytest.mark.integration
def test_every_matrix_has_its_own_key_in_few_draws():
    shape = Architecture(vocabulary=5, width=4, context=3, heads=1, blocks=2, activation="relu")
    model = transformer.init(KEY, shape)
    block_key, table_key = jax.random.split(KEY)
    tables = [
        normal(jax.random.fold_in(table_key, i), (rows, 4)) for i, rows in enumerate((5, 3, 5))
    ]
    np.testing.assert_array_equal(model.embedding, tables[0])
    np.testing.assert_array_equal(model.positions, tables[1])
    np.testing.assert_array_equal(model.head, tables[2] / 2)
    for i, name in enumerate(Blocks.__dataclass_fields__):
        found = getattr(model.blocks, name)
        if found is not None:
            _, rows, columns = found.shape
            keys = jax.random.split(jax.random.fold_in(block_key, i), 2)
            expected = jnp.stack([normal(key, (rows, columns)) for key in keys])
            np.testing.assert_allclose(found, expected / np.sqrt(columns), rtol=1e-6)

    def draws(program):
        inner = sum(draws(body) for each in program.equations for body in each.bodies)
        return inner + sum(each.name == "random_bits" for each in program.equations)

    program, _ = trace(lambda key: jax.tree.leaves(transformer.init(key, shape)), KEY)
    # One for each number of columns.
    assert draws(program) == 2


@pytest.mark.integration
def test_figure_19_starts_from_zero_outputs_and_equal_shares():
    architecture = transformer.figure_19(11, 24, 7)
    model = transformer.init(KEY, architecture)
    for zero in (model.blocks.output, model.blocks.down, model.head):
        np.testing.assert_array_equal(zero, 0)
    np.testing.assert_array_equal(model(jnp.arange(5)), 0)
    assert model.values.tables.shape == (3, 11, 24)
    np.testing.assert_array_equal(model.values.shares, np.full((12, 2), 0.5))
    np.testing.assert_array_equal(model.skips, np.ones(6))
    assert (model.cap, model.positions, model.heads) == (15.0, None, 6)
    # The other matrices are those of the architecture without.
    plain = transformer.init(KEY, Architecture(11, 24, 7, 12, 6, "relu_squared"))
    for name in ("query", "key", "value", "up"):
        np.testing.assert_array_equal(getattr(model.blocks, name), getattr(plain.blocks, name))
    # Tables are independent standard normal entries, of which no two tables share any.
    assert abs(np.square(model.values.tables).mean() - 1) < 4 * np.sqrt(
        2 / model.values.tables.size
    )
    assert np.abs(
        np.corrcoef(np.reshape(model.values.tables, (3, -1))) - np.eye(3)
    ).max() < 4 / np.sqrt(264)


@pytest.mark.slow
def test_a_padded_width_gives_the_same_model_and_muon_step():
    batch = Sequences(jax.random.randint(KEY, (3, 7), 0, 11))
    optimizer = optim.jordan_muon(
        0.1,
        labels=transformer.labels,
        muon_weight_dimension_numbers=optim.OUT_IN,
        fallback=optax.sgd(0.1),
    )

    options = {"qk_norm": True, "value_tables": 1, "skips": True, "cap": 15.0}

    def after_a_step(width):
        model = transformer.init(
            KEY, Architecture(11, width, 7, activation="relu_squared", **options)
        )
        gradient = jax.grad(transformer.loss)(model, batch, width)
        updates, _ = optimizer.update(gradient, optimizer.init(model), model)
        moved = optax.apply_updates(model, updates)
        return transformer.loss(model, batch, width), transformer.loss(moved, batch, width), moved

    plain = jax.jit(lambda: after_a_step(8))()
    padded = jax.jit(lambda active: after_a_step(Size(12, active)))(8)
    np.testing.assert_allclose(plain[:2], padded[:2], rtol=1e-4)
    assert float(plain[0]) - float(plain[1]) > 0.01
    np.testing.assert_array_equal(padded[2].blocks.up[:, 32:], 0)
    np.testing.assert_array_equal(padded[2].embedding[:, 8:], 0)
    np.testing.assert_allclose(plain[2].blocks.up, padded[2].blocks.up[:, :32, :8], atol=2e-4)


@pytest.mark.integration
def test_loss_and_accuracy_count_the_chosen_tokens_only():
    model, rng = some_weights(Architecture(5, 8, 6)), np.random.default_rng(1)
    tokens, counted = rng.integers(5, size=(4, 7)), rng.random((4, 6)) < 0.4
    logits = np.stack([reference.forward(model, row[:-1])[0] for row in tokens])
    losses = -np.take_along_axis(log_softmax(logits, -1), tokens[:, 1:, None], -1)[..., 0]
    right = logits.argmax(-1) == tokens[:, 1:]
    for mask in (counted, None):
        chosen = np.ones_like(counted) if mask is None else mask
        loss, accuracy = jax.jit(lambda m, b: (transformer.loss(m, b), transformer.accuracy(m, b)))(
            model, Sequences(tokens, mask)
        )
        np.testing.assert_allclose(loss, losses[chosen].mean(), rtol=1e-5)
        np.testing.assert_allclose(accuracy, right[chosen].mean(), rtol=1e-6)
    assert 0 < right[counted].mean() < 1


def test_labels_send_the_matrices_of_the_blocks_to_muon():
    model = shapes(Architecture(5, 4, 3, activation=None, tied=True))
    named = {
        jax.tree_util.keystr(path): label
        for path, label in jax.tree.leaves_with_path(transformer.labels(model))
    }
    blocks = {f".blocks.{name}": "matrix" for name in ("query", "key", "value", "output")}
    assert named == blocks | {".embedding": "other", ".positions": "other"}


def test_labels_keep_tables_shares_and_skip_weights_from_muon():
    labels = transformer.labels(shapes(transformer.figure_19(5, 8, 3, blocks=4, heads=1)))
    assert (labels.values.tables, labels.values.shares, labels.skips, labels.head) == ("other",) * 4
    assert labels.blocks.up == "matrix"


WRONG_CALLS = """
width=0
    All sizes of a transformer must be at least 1, got
width=9, heads=2
    The heads must divide the width, got heads=2 and width=9.
width=Size(8, 4), heads=2
    A width that is swept as a Size needs heads=1, got 2; sweep it by values.
rotary=True, heads=4
    Rotary positions need heads of a size that 4 divides and is an int, got heads=4
rotary=True, width=Size(8, 4)
    Rotary positions need heads of a size that 4 divides and is an int, got
value_tables=2, blocks=3
    A value table serves one of the first and one of the last blocks, got 2 for 3 blocks.
skips=True, blocks=3
    Skips join the blocks in pairs, got 3 blocks; make them even.
zero_outputs=True, tied=True
    Outputs that start at zero need W_O and a head of its own:
cap=0.0
    The cap on the logits must be positive, got 0.0.
activation="rely"
    There is no activation 'rely'; there are None,
"""


@pytest.mark.parametrize(("arguments", "sentence"), wrong_calls(WRONG_CALLS))
def test_what_an_architecture_cannot_be_is_refused(arguments, sentence):
    given = eval(f"dict({arguments})")
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        Architecture(**{"vocabulary": 5, "width": 8, "context": 4} | given)
    assert str(refused.value).startswith(sentence)


def test_a_sequence_longer_than_the_context_is_refused():
    with pytest.raises(
        ValueError, match=r"A sequence of 4 tokens is longer than the context of 3\."
    ):
        some_weights(Architecture(5, 4, 3))(jnp.zeros(4, int))
