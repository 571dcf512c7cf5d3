"""The examples in docstrings: they print what they show, and every function of a room has one."""

import doctest
import importlib
import inspect
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import xarray as xr

ROOT = Path(__file__).parents[1]
PROMPT = re.compile(r"^ *>>> ", re.MULTILINE)
WITH_EXAMPLES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((ROOT / "specjax").rglob("*.py"))
    if PROMPT.search(path.read_text())
}
SECONDS = ("specjax.scaling._coordinate_check",)
"""Modules whose examples take seconds, most of them to compile."""
COMPLETE = ("fits", "lab", "lab.controls", "moments", "scaling", "sizes", "sweep", "training")
"""Rooms and modules in which every public function has an example."""
ABBREVIATIONS = {"jax": jax, "jnp": jnp, "np": np, "optax": optax, "xr": xr}
"""Names that an example uses without importing them."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.integration] if name in SECONDS else [])
        for name in WITH_EXAMPLES
    ],
)
def test_examples_print_what_they_show(name):
    module = importlib.import_module(name)
    found = doctest.DocTestFinder().find(module, name, extraglobs=ABBREVIATIONS)
    runner, report = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS), []
    # A reader's session adds a bias to a batch, and numbers of two precisions.
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        failed = sum(runner.run(test, out=report.append).failed for test in found)
    assert not failed, "".join(report)
    # What the finder skips, such as a function within another, would never run.
    written = len(PROMPT.findall(WITH_EXAMPLES[name].read_text()))
    assert sum(len(test.examples) for test in found) == written


@pytest.mark.parametrize("room", COMPLETE)
def test_every_function_of_a_room_has_an_example(room):
    name = f"specjax.{room}"
    functions = {
        called: function
        for called, function in vars(importlib.import_module(name)).items()
        if inspect.isfunction(function) and f"{function.__module__}.".startswith(f"{name}.")
    }
    public = [called for called in functions if not called.startswith("_")]
    assert public
    assert not [called for called in public if not PROMPT.search(functions[called].__doc__ or "")]
