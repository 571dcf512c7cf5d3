"""The page for those who come from other Muons names every argument of theirs."""

import inspect
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from specjax import optim

PAGE = Path(__file__).parents[2] / "docs" / "optim.md"
# torch/optim/_muon.py of 2.13 to 2.15; dion/muon.py of microsoft/dion, commit 0a059a4.
TORCH = "lr weight_decay momentum nesterov ns_coefficients eps ns_steps adjust_lr_fn"
DION = (
    "distributed_mesh lr mu betas weight_decay cautious_wd epsilon nesterov adjust_lr flatten "
    "use_gram_newton_schulz use_triton use_polar_express newton_schulz_func"
)
# dion/megabatch_base.py
STEPS = (
    (4.0848, -6.8946, 2.9270),
    (3.9505, -6.3029, 2.6377),
    (3.7418, -5.5913, 2.3037),
    (2.8769, -3.1427, 1.2046),
    (2.8366, -3.0525, 1.2012),
)


def column(index):
    """The names in a column of the table of arguments."""
    text = PAGE.read_text("utf-8")
    table = re.search(r"\| here, as in optax .*\n\|[-|]+\n((?:\|.*\n)+)", text)[1]
    cells = [row.split("|")[1 + index] for row in table.splitlines()]
    return {name for cell in cells for name in re.findall(r"`(\w+)=?`", cell)}


def test_every_argument_of_optax_has_an_entry_and_is_one_of_ours():
    theirs = set(inspect.signature(optax.contrib.muon).parameters)
    ours = set(inspect.signature(optim.muon).parameters)
    assert theirs <= column(0) <= ours


@pytest.mark.parametrize(("index", "names"), [(1, TORCH), (2, DION)], ids=["torch", "dion"])
def test_every_argument_of_others_has_an_entry(index, names):
    assert set(names.split()) <= column(index)


def test_the_arguments_of_torch_are_those_of_its_muon():
    torch = pytest.importorskip("torch")
    names = set(inspect.signature(torch.optim.Muon).parameters) - {"params"}
    assert names == set(TORCH.split())


def dion_steps(weight, gradients, rate=0.01, mu=0.95, decay=0.01):
    """`Muon` of dion/muon.py on one matrix (out, in), without its rounding to bfloat16."""
    momentum = np.zeros_like(weight)
    for gradient in gradients:
        momentum = mu * momentum + gradient
        x = momentum if weight.shape[0] <= weight.shape[1] else momentum.T
        x = x / (np.linalg.norm(x) + 1e-8)
        for a, b, c in STEPS:
            gram = x @ x.T
            x = a * x + (b * gram + c * gram @ gram) @ x
        x = x if weight.shape[0] <= weight.shape[1] else x.T
        adjusted = rate * np.sqrt(weight.shape[0] / weight.shape[1])
        weight = (1 - rate * decay) * weight - adjusted * x
    return weight


@pytest.mark.parametrize("shape", [(6, 10), (10, 6)])
def test_the_line_for_dion_makes_its_steps(shape):
    text = PAGE.read_text("utf-8")
    (line,) = re.findall(r"optim\.jordan_muon\([^)]*dion[^)]*\)", text)
    optimizer = eval(line, {"optim": optim})
    rng = np.random.default_rng(0)
    start, *gradients = rng.standard_normal((4, *shape))
    weight = jnp.asarray(start, jnp.float32)
    state = optimizer.init(weight)
    update = jax.jit(optimizer.update)
    for gradient in gradients:
        steps, state = update(jnp.asarray(gradient, jnp.float32), state, weight)
        weight = weight + steps
    np.testing.assert_allclose(weight, dion_steps(start, gradients), rtol=0, atol=2e-6)
