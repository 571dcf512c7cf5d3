"""The vocabulary of docs/glossary.md, as far as a program can check it."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = sorted((ROOT / "specjax").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
LIBRARY = [path for path in MODULES if "experiments" not in path.parts]


def functions(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            yield node


def public_parameters(path):
    for function in functions(path):
        arguments = function.args.posonlyargs + function.args.args + function.args.kwonlyargs
        if not function.name.startswith("_"):
            yield function, [argument.arg for argument in arguments]


def test_a_count_of_seeds_is_num_seeds():
    """`seeds` is a sequence, or a field of a configuration; these have no annotation of int."""
    wrong = [
        f"{path.name}: {function.name}"
        for path in LIBRARY
        for function in functions(path)
        for argument in function.args.args + function.args.kwonlyargs
        if argument.arg == "seeds"
        and argument.annotation is not None
        and path.parent.name in ("diagnostics", "scaling", "lab", "training")
        and ast.unparse(argument.annotation) == "int"
    ]
    assert not wrong


def test_a_function_that_draws_makes_a_picture():
    """`draw` takes axes, or is the method of an experiment that returns a figure."""
    wrong = [
        f"{path.name}: {function.name}"
        for path in LIBRARY
        for function, parameters in public_parameters(path)
        if function.name == "draw"
        and not {"axes", "ax"} & set(parameters)
        and "Figure" not in ast.unparse(function.returns)
    ]
    assert not wrong


def test_what_is_random_is_sampled_and_not_drawn():
    """`draws` is a number of samples, or holds them, in no signature and no field of the
    library.
    """
    wrong = []
    for path in LIBRARY:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.arg) and "draws" in node.arg:
                wrong.append(f"{path.name}: {node.arg}")
            if isinstance(node, ast.AnnAssign) and "draws" in ast.unparse(node.target):
                wrong.append(f"{path.name}: {ast.unparse(node.target)}")
    assert not wrong


def test_the_decay_of_a_momentum_is_beta():
    wrong = [
        f"{path.name}: {function.name}({name})"
        for path in (ROOT / "specjax" / "optim").glob("*.py")
        for function, parameters in public_parameters(path)
        for name in parameters
        if name in ("decay", "momentum_dtype", "other")
    ]
    assert not wrong


@pytest.mark.integration
@pytest.mark.parametrize("word", ["told", "tells", "so many", "is no array", "is no matrix"])
def test_docstrings_of_the_library_avoid_hard_words(word):
    pattern = re.compile(rf"\b{word}\b")
    wrong = []
    for path in LIBRARY:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                text = " ".join((ast.get_docstring(node) or "").split())
                wrong += [f"{path.name}: {text[:60]}"] * bool(pattern.search(text))
    assert not wrong


def test_two_files_of_one_name_mean_one_thing():
    """A model and its theory share a name, and so do pictures of fits and lab."""
    same = {"deep_linear", "matrix_factorization", "random_features", "relu_network", "drawing"}
    same |= {"dominance", "momentum", "evaluation", "interpreter", "uses", "rounding"}
    names = [path.stem.removeprefix("_") for path in LIBRARY if path.stem != "__init__"]
    assert {name for name in names if names.count(name) > 1} <= same


def test_no_module_is_longer_than_a_reader_can_hold():
    long = {path.name: n for path in MODULES if (n := len(path.read_text().split("\n"))) > 381}
    assert not long


@pytest.mark.integration
def test_the_name_of_a_test_has_at_most_60_characters():
    names = [function.name for path in TESTS for function in functions(path)]
    assert not [name for name in names if name.startswith("test") and len(name) > 60]


def test_every_guide_links_to_the_glossary():
    guides = ("tutorial", "sweeps", "fits", "optim", "muon-on-your-model", "transfer", "training")
    assert all("(glossary.md)" in (ROOT / "docs" / f"{name}.md").read_text() for name in guides)
