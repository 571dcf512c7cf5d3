"""What the CI of a public host does, on this machine: `nox` for all of it, `nox --list` for the
parts.

Needs nox, and for each version of Python an interpreter called python3.11, python3.12 or
python3.13; a version without one is skipped.
"""

import shutil

import nox

# As in .github/workflows/ci.yml: each Python with the newest JAX that it has, which for 3.11 is the
# oldest that pyproject.toml allows.
MATRIX = [("3.13", ""), ("3.12", ""), ("3.12", "jax==0.11.2"), ("3.11", "jax==0.10.1")]
# What every verdict rests on: at least so many per cent of the lines and branches of each are run
# by its tests.
COVERED, LEAST = ("spectral", "theory", "sweep"), 95


# .ci/run makes its own environment, from nothing, so that nox has none to make.
@nox.session(venv_backend="none")
@nox.parametrize(("version", "constraint"), MATRIX)
def ci(session: nox.Session, version: str, constraint: str) -> None:
    """Lint, types, layers and tests, as .ci/run does them."""
    interpreter = f"python{version}"
    if shutil.which(interpreter) is None:
        session.skip(f"There is no {interpreter} here.")
    session.run(".ci/run", external=True, env={"PYTHON": interpreter, "CONSTRAINT": constraint})


@nox.session
def docs(session: nox.Session) -> None:
    """The site, where every warning is an error."""
    session.install(".[docs]")
    session.run("python", "-m", "doctest", "scripts/maintain/site_hooks.py")
    session.run("mkdocs", "build", "--strict", "--site-dir", session.create_tmp())


@nox.session
def coverage(session: nox.Session) -> None:
    """Lines and branches of the packages in COVERED, under the tests of these packages, but for the
    slow ones.
    """
    # Editable: what is measured are the files of the checkout.
    session.install("-e", ".[test]", "pytest-cov>=7", "coverage>=7.10")
    folders = [f"tests/{package}" for package in COVERED]
    session.run(
        "python",
        "-m",
        "pytest",
        "-m",
        "not slow",
        "--cov",
        "--cov-report=",
        *folders,
        "tests/test_cli.py",
    )
    for package in COVERED:
        session.log(f"specjax.{package}")
        session.run("coverage", "report", f"--include=specjax/{package}/*", f"--fail-under={LEAST}")


@nox.session
def interop(session: nox.Session) -> None:
    """Models of flax and haiku, and the pages that show them: tests that are skipped where these
    are not installed.
    """
    session.install("-e", ".[test,interop]")
    chosen = "says or framework or another_library"
    folders = ("tests/diagnostics/layout", "tests/test_docs.py")
    session.run("python", "-m", "pytest", "-m", "not slow", "-k", chosen, *folders)


# Not by default.
@nox.session(default=False)
def mutation(session: nox.Session) -> None:
    """Small changes of specjax.theory, each of which a test should notice; hours, less for a part:
    `-- 'specjax.theory.angles*'`.
    """
    session.install("-e", ".[test]", "mutmut>=3.8")
    # Programs that no change reaches are compiled once, not once for each change.
    cache = {
        "JAX_COMPILATION_CACHE_DIR": session.create_tmp(),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    session.run("mutmut", "run", *session.posargs, env=cache)
    session.run("mutmut", "results")
