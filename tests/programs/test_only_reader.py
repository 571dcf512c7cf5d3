"""Only `specjax.programs` reads the programs of JAX: nothing else names what JAX may rename."""

import ast
from pathlib import Path

import pytest

import specjax

PACKAGE = Path(specjax.__file__).parent
MODULES = ("jax.extend", "jax._src", "jax.core", "jax.interpreters", "jax.lib")
ATTRIBUTES = "aval constvars eqns eval_jaxpr invars jaxpr jaxprs make_jaxpr outvars primitive"
WORDS = (
    "body_jaxpr body_nconsts call_jaxpr cond_jaxpr cond_nconsts ft_in ft_out fun_jaxpr jaxpr"
    " num_carry num_consts"
)


def readings(source):
    """What a module names of JAX's programs, with its line."""
    found = []
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.startswith(MODULES)]
        elif isinstance(node, ast.ImportFrom):
            modules = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
            names = [module for module in modules if module.startswith(MODULES)]
        elif isinstance(node, ast.Attribute):
            is_parameters = node.attr == "params" and ast.unparse(node.value) in ("eqn", "equation")
            names = [ast.unparse(node)] if node.attr in ATTRIBUTES.split() or is_parameters else []
            names += [name for name in [ast.unparse(node)] if name.startswith(MODULES)]
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and node.value in WORDS.split()
        ):
            names = [repr(node.value)]
        found += [f"{name}, line {node.lineno}" for name in names]
    return found


@pytest.mark.integration
def test_no_other_module_reads_programs():
    outside = [
        path for path in PACKAGE.rglob("*.py") if "programs" not in path.relative_to(PACKAGE).parts
    ]
    assert len(outside) > 200
    found = {str(path.relative_to(PACKAGE)): readings(path.read_text()) for path in outside}
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize(
    "line",
    [
        "from jax.extend import core",
        "import jax.extend.core",
        "from jax import core",
        "from jax._src.core import Jaxpr",
        "isinstance(x, jax.core.Tracer)",
        "closed = jax.make_jaxpr(f)(x)",
        "program = traced.jaxpr",
        "for eqn in program.eqns: pass",
        "axes = eqn.params['axes']",
        "length = params['num_consts']",
    ],
)
def test_the_reading_of_a_program_is_seen(line):
    assert readings(line)
