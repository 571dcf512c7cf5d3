"""scripts/maintain/odd_calls.py: what it reports, and that nothing is reported of a few
dozen calls and command lines.
"""

import importlib.util
import itertools
import random
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "maintain" / "odd_calls.py"


@pytest.fixture(scope="module")
def odd():
    spec = importlib.util.spec_from_file_location("odd_calls", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["odd_calls"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["odd_calls"]


@pytest.mark.slow
def test_a_few_dozen_are_answered_by_one_sentence(optimized_environment):
    """In a process of its own, without the settings and type checks of the tests."""
    command = [sys.executable, SCRIPT, "--commands", "40", "--calls", "80", "--seed", "1"]
    ran = subprocess.run(
        command, capture_output=True, text=True, env=optimized_environment, check=False
    )
    assert ran.stdout == "40 command lines and 80 calls, 0 not answered by one sentence\n", (
        ran.stderr
    )
    assert ran.returncode == 0


@pytest.mark.integration
def test_what_is_no_sentence_is_reported(odd):
    def raises(error):
        def run():
            raise error

        return run

    assert odd.problem(lambda: 3) is None
    assert odd.problem(raises(ValueError("f needs a number as x, got None."))) is None
    assert odd.problem(raises(SystemExit(0))) is None
    assert odd.problem(raises(SystemExit(3))) == "exit 3"
    assert odd.problem(raises(ValueError("one\ntwo."))) == "ValueError: ['one']"
    assert (
        odd.problem(raises(TypeError("unsupported operand")))
        == "TypeError: ['unsupported operand']"
    )
    assert (
        odd.problem(raises(AttributeError("no attribute."))) == "AttributeError: ['no attribute.']"
    )


@pytest.mark.integration
def test_the_same_seed_gives_the_same_calls(odd):
    first, second = (
        list(itertools.islice(odd.odd_lines(50, random.Random(7)), 50)) for _ in range(2)
    )
    assert first == second
    assert [w for w, _ in odd.odd_calls(50, random.Random(7))] == [
        w for w, _ in odd.odd_calls(50, random.Random(7))
    ]
