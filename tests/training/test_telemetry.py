"""Ranks along a training, against singular values of what a transformer in numpy multiplies."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.diagnostics import activation_stable_ranks
from specjax.models import transformer
from specjax.models.transformer import Architecture, Sequences
from specjax.training import measure_ranks
from tests.reference import transformer as reference
from tests.reference.ranks import nuclear_rank, stable_rank

pytestmark = pytest.mark.integration


def attention(params, x):
    """Heads as flax has them: kernels (d, heads, head) in, (heads, head, d) out; one used whole and
    in part.
    """
    heads = jnp.tanh(jnp.einsum("td,dhk->thk", x, params["up"]))
    joined = jnp.einsum("thk,hkd->td", heads, params["down"]) @ params["joint"]
    return jnp.mean(jnp.sin(joined)) + jnp.mean(jnp.sin(x @ params["joint"][:, 3:]))


def experts(params, x):
    """The same with a matrix for each along an axis, which makes experts of heads: the others hold
    one for each, too.
    """
    heads = jnp.tanh(jnp.einsum("td,dhk->thk", x, params["up"]))
    mixed = jnp.einsum("thk,hkl->thl", heads, params["mix"])
    return jnp.mean(jnp.sin(jnp.einsum("thl,hld->td", mixed, params["down"])))


# The gradient in half precision, 2^-8 an entry, is rounded in other places in another program.
@pytest.mark.parametrize(("dtype", "rtol"), [("float32", 1e-3), ("bfloat16", 2e-2)])
def test_the_layout_of_a_kernel_is_that_of_its_products(dtype, rtol):
    params, x = drawn({"up": (12, 3, 5), "down": (3, 5, 12), "joint": (12, 8)}, dtype)
    ranks, gradient = ranks_and_gradient(attention, params, x)
    expected = {
        "up": nuclear_rank(gradient["up"].reshape(12, 15)),
        "down": nuclear_rank(gradient["down"].reshape(15, 12)),
        # Used whole, and in part: the smaller one.
        "joint": min(nuclear_rank(gradient["joint"]), nuclear_rank(gradient["joint"][:, 3:])),
    }
    for name, rank in expected.items():
        assert ranks.nuclear[name].dtype == "float32"
        np.testing.assert_allclose(ranks.nuclear[name], rank, rtol=rtol, err_msg=name)
        assert ranks.stable[name].shape == ranks.nuclear[name].shape
    np.testing.assert_allclose(
        ranks.stable["up"], stable_rank(np.asarray(x, np.float64).T), rtol=0.02
    )


def test_an_axis_of_matrices_counts_in_every_kernel_that_has_it():
    params, x = drawn({"up": (12, 3, 4), "mix": (3, 4, 5), "down": (3, 5, 12)}, "float32")
    ranks, gradient = ranks_and_gradient(experts, params, x)
    for name, axis in {"up": 1, "mix": 0, "down": 0}.items():
        expected = [nuclear_rank(matrix) for matrix in np.moveaxis(gradient[name], axis, 0)]
        np.testing.assert_allclose(ranks.nuclear[name], expected, rtol=1e-3, err_msg=name)


def drawn(shapes, dtype):
    *keys, of_x = jax.random.split(jax.random.key(0), len(shapes) + 1)
    draws = zip(keys, shapes.items(), strict=True)
    params = {name: jax.random.normal(key, shape).astype(dtype) for key, (name, shape) in draws}
    return params, jax.random.normal(of_x, (7, 12)).astype(dtype)


def ranks_and_gradient(loss, params, x):
    ranks = jax.jit(lambda p: measure_ranks(loss, p, x))(params)
    return ranks, jax.tree.map(
        lambda g: np.asarray(g, np.float64), jax.jit(jax.grad(loss))(params, x)
    )


def test_the_model_is_opened_up_once():
    calls = []

    def model(w, x):
        calls.append(1)
        return jnp.sum((x @ w) ** 2)

    w, x = jnp.ones((3, 2)), jnp.ones((5, 3))
    jax.eval_shape(lambda w: activation_stable_ranks(model, w, x), w)
    alone = len(calls)
    jax.eval_shape(lambda w: measure_ranks(model, w, x), w)
    # Once more for the gradient.
    assert len(calls) == 2 * alone + 1


@pytest.mark.slow
def test_ranks_of_a_transformer():
    architecture = Architecture(9, 16, 12, heads=2, activation="swiglu")
    model = jax.jit(lambda key: transformer.init(key, architecture))(jax.random.key(0))
    tokens = np.array(jax.random.randint(jax.random.key(1), (5, 13), 0, 9))
    batch = Sequences(jnp.asarray(tokens))
    ranks = jax.jit(lambda m: measure_ranks(transformer.loss, m, batch))(model)
    gradient = jax.tree.map(np.asarray, jax.jit(jax.grad(transformer.loss))(model, batch))
    seen = [reference.forward(jax.tree.map(np.asarray, model), row[:-1])[1] for row in tokens]
    for name, layer in seen[0]:
        in_blocks = layer is not None
        stable = getattr(ranks.stable.blocks, name)[layer] if in_blocks else ranks.stable.head
        nuclear = getattr(ranks.nuclear.blocks, name)[layer] if in_blocks else ranks.nuclear.head
        s = np.linalg.svd(
            np.concatenate([inputs[name, layer] for inputs in seen]), compute_uv=False
        )
        np.testing.assert_allclose(stable, np.sum(s**2) / s[0] ** 2, rtol=0.02, err_msg=name)
        s = np.linalg.svd(
            getattr(gradient.blocks, name)[layer] if in_blocks else gradient.head, compute_uv=False
        )
        np.testing.assert_allclose(nuclear, s.sum() ** 2 / np.sum(s**2), rtol=1e-3, err_msg=name)
    counts = np.bincount(tokens[:, :-1].ravel())
    np.testing.assert_allclose(ranks.stable.embedding, counts.sum() / counts.max(), rtol=1e-5)
    assert ranks.stable.positions is None
    assert ranks.nuclear.positions is None
