"""Dion against NumPy over ten steps, written from `dion_update` of the authors' reference: weights
(out, in), one matrix at a time, in float64.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from specjax import optim
from tests.wrong_calls import wrong_calls

pytestmark = pytest.mark.usefixtures("x64")
KEY = jax.random.key(3)
STEPS = 10
SHAPES = {"tall": (7, 4), "wide": (3, 6), "square": (5, 5), "stack": (2, 4, 6)}


def tree(seed):
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(shape) for name, shape in SHAPES.items()}


GRADIENTS = [tree(seed) for seed in range(STEPS)]


def dion(gradients, q, mu=0.9, eps=0.0, scaled=True, feedback=None, stale=False):
    """The last update of one matrix; eps is 1e-8 in the code."""
    fan_out, fan_in = gradients[0].shape
    transpose = fan_out < fan_in
    feedback = 1 - mu if feedback is None else feedback
    m = np.zeros((fan_out, fan_in))
    for g in gradients:
        m = m + g
        b = m.T if transpose else m
        p, _ = np.linalg.qr(b @ q)
        r = b.T @ p
        m = m - feedback * (r @ p.T if transpose else p @ r.T)
        before = q / np.linalg.norm(q, axis=0)
        q = r / (np.linalg.norm(r, axis=0, keepdims=True) + eps)
        second = before if stale else q
        update = second @ p.T if transpose else p @ second.T
    return (fan_out / fan_in) ** 0.5 * update if scaled else update


def trained(gradients=GRADIENTS, rank=2, beta=0.9, **options):
    """The last update and the first state; the matrices are (out, in) unless options say else."""
    options = {"dimension_numbers": optim.OUT_IN} | options
    transform = optim.scale_by_dion(rank, beta, key=KEY, **options)
    gradients = [jax.tree.map(jnp.asarray, g) for g in gradients]
    first = state = transform.init(gradients[0])
    update = jax.jit(transform.update)
    for g in gradients:
        updates, state = update(g, state)
    return updates, first


def by_hand(first, **options):
    """The reference on every matrix, from the same first bases; the leaves are sorted by name."""
    found = {}
    for name, basis in zip(sorted(SHAPES), first.basis, strict=True):
        own = [g[name].reshape(-1, *g[name].shape[-2:]) for g in GRADIENTS]
        each = [dion([g[i] for g in own], q, **options) for i, q in enumerate(np.asarray(basis))]
        found[name] = np.stack(each).reshape(SHAPES[name])
    return found


@pytest.mark.integration
@pytest.mark.parametrize(("rank", "r"), [(1, 1), (2, 2), (0.5, None), (1.0, None), (9, None)])
def test_ten_steps_are_those_of_the_authors_code(rank, r):
    updates, first = trained(rank=rank)
    short = {name: min(shape[-2:]) for name, shape in SHAPES.items()}
    expected = {k: r or int(np.ceil(n * rank)) if rank != 9 else n for k, n in short.items()}
    assert [basis.shape[-1] for basis in first.basis] == [expected[k] for k in sorted(SHAPES)]
    for name, right in by_hand(first).items():
        np.testing.assert_allclose(updates[name], right, rtol=0, atol=1e-9)


@pytest.mark.integration
@pytest.mark.parametrize(
    "wrong",
    [{"mu": 0.8}, {"scaled": False}, {"feedback": 1.0}, {"feedback": 0.0}, {"stale": True}],
    ids=str,
)
def test_the_nearest_wrong_formulas_are_far_away(wrong):
    _, first = trained()
    right, other = by_hand(first), by_hand(first, **wrong)
    assert min(np.abs(right[k] - other[k]).max() for k in ("tall", "wide")) > 1e-3
    code = by_hand(first, eps=1e-8)
    assert max(np.abs(right[k] - code[k]).max() for k in right) < 1e-7


@pytest.mark.integration
def test_the_layout_turns_the_matrices_alone():
    """(in, out) with the bases of the other side gives the transposed step."""
    out_in, _ = trained()
    turned, _ = trained(
        [{k: np.swapaxes(x, -1, -2) for k, x in g.items()} for g in GRADIENTS],
        dimension_numbers=optim.IN_OUT,
    )
    for name, x in turned.items():
        np.testing.assert_allclose(np.swapaxes(x, -1, -2), out_in[name], rtol=0, atol=1e-9)


def test_what_a_step_leaves_out_comes_later():
    """Of a constant diag(3, 2, 1) a rank of 1 takes all three directions in turn, where power
    iteration on an average takes the first alone.
    """
    gradient = jnp.diag(jnp.array([3.0, 2.0, 1.0]))
    transform = optim.scale_by_dion(1, 0.5, key=KEY)

    def step(state, _):
        update, state = transform.update(gradient, state)
        return state, update

    _, updates = jax.jit(lambda: jax.lax.scan(step, transform.init(gradient), length=60))()
    parts = np.abs(np.diagonal(updates, axis1=1, axis2=2))
    assert (parts.max(axis=0) > 0.9).all()
    np.testing.assert_allclose(np.linalg.norm(updates, axis=(1, 2)), 1, atol=1e-9)


@pytest.mark.integration
def test_a_momentum_of_lower_rank_has_no_step_outside_it():
    """The code makes unit columns of rounding; here the step of a matrix of rank 1 is its factor,
    and a direction that comes later is found.
    """
    rng = np.random.default_rng(0)
    u, v = rng.standard_normal(6), rng.standard_normal(4)
    first, second = np.outer(u, v), rng.standard_normal((6, 4))
    found, _ = trained([{"w": first}], rank=3, scale="none")
    right = first / np.linalg.norm(u) / np.linalg.norm(v)
    np.testing.assert_allclose(found["w"], right, atol=1e-12)
    later, _ = trained([{"w": first}, {"w": second}], rank=3, scale="none")
    assert np.linalg.matrix_rank(later["w"], tol=1e-6) == 3


@pytest.mark.integration
def test_zero_stays_zero_and_nan_spoils_its_own_matrix():
    zero, spoiled = np.zeros((2, 3)), np.full((2, 3), np.nan)
    updates, _ = trained([{"a": zero, "b": spoiled, "c": np.stack([np.eye(2), spoiled[:, :2]])}])
    assert not updates["a"].any()
    assert np.isnan(updates["b"]).all()
    assert np.isfinite(updates["c"][0]).all()
    assert np.isnan(updates["c"][1]).all()


def test_fused_matrices_have_a_basis_each():
    widths = (2, 3)
    gradients = [{"qkv": np.random.default_rng(i).standard_normal((4, 5))} for i in range(4)]
    fused, state = trained(gradients, splits={"qkv": widths}, dimension_numbers=optim.IN_OUT)
    assert [basis.shape for basis in state.basis] == [(1, 2, 2), (1, 3, 2)]
    starts = (0, 2)
    for start, width, basis in zip(starts, widths, state.basis, strict=True):
        own = [g["qkv"][:, start : start + width].T for g in gradients]
        found = np.asarray(fused["qkv"])[:, start : start + width].T
        np.testing.assert_allclose(found, dion(own, np.asarray(basis)[0]), atol=1e-9)


@pytest.mark.integration
def test_it_takes_the_place_of_momentum_and_polar_factor():
    """With full rank and a flat spectrum the step is Muon's, of the momentum's polar factor."""
    gradient = jnp.asarray(np.linalg.qr(np.random.default_rng(1).standard_normal((6, 3)))[0])
    chain = optax.chain(
        optim.scale_by_dion(1.0, key=KEY, scale="none"), optax.scale_by_learning_rate(0.1)
    )
    update, _ = chain.update(gradient, chain.init(gradient))
    np.testing.assert_allclose(update, -0.1 * gradient, atol=1e-9)


WRONG_CALLS = """
optim.scale_by_dion(0, key=KEY)
    needs a whole number of at least 1 as rank, got 0.
optim.scale_by_dion(1.5, key=KEY)
    needs a number in \\(0, 1\\] as rank, got 1.5.
optim.scale_by_dion(1, 1.0, key=KEY)
    needs a number in \\[0, 1\\) as beta, got 1.0.
optim.scale_by_dion(1, scale="spectral", key=KEY)
    Unknown scale 'spectral'; choose one of none,
optim.scale_by_dion(1, key=KEY).init({"b": jnp.ones(3)})
    scale_by_dion needs matrices, the leaf b has shape
"""


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("call", "sentence"), wrong_calls(WRONG_CALLS))
def test_wrong_calls_are_refused_in_one_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence) as refusal:
        eval(call)
    assert "\n" not in str(refusal.value)


@pytest.mark.integration
@pytest.mark.parametrize("power", [-90, 90])
def test_the_step_does_not_depend_on_the_size_of_the_gradients(power):
    gradients = [{"w": g["tall"].astype(np.float32)} for g in GRADIENTS[:3]]
    one, _ = trained(gradients)
    other, _ = trained([{"w": np.ldexp(g["w"], power)} for g in gradients])
    assert one["w"].dtype == other["w"].dtype == jnp.float32
    np.testing.assert_array_equal(one["w"], other["w"])
