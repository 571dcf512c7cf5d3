"""What the CI of a public host does, on this machine: `nox` for all of it, `nox --list` for the parts.

Needs nox, and for each version of Python an interpreter called python3.11, python3.12 or python3.13; a version without one is skipped.
"""

import shutil

import nox

PYTHONS = ("3.11", "3.12", "3.13")
# As in .github/workflows/ci.yml.
CONSTRAINTS = {"newest": "", "oldest": "jax==0.10.0"}


# .ci/run makes its own environment, from nothing, so that nox has none to make.
@nox.session(venv_backend="none")
@nox.parametrize("jax", list(CONSTRAINTS))
@nox.parametrize("version", PYTHONS)
def ci(session: nox.Session, version: str, jax: str) -> None:
    """Lint, types, layers and tests, as .ci/run does them."""
    interpreter = f"python{version}"
    if shutil.which(interpreter) is None:
        session.skip(f"There is no {interpreter} here.")
    session.run(".ci/run", external=True, env={"PYTHON": interpreter, "CONSTRAINT": CONSTRAINTS[jax]})


@nox.session
def docs(session: nox.Session) -> None:
    """The site, where every warning is an error."""
    session.install(".[docs]")
    session.run("mkdocs", "build", "--strict", "--site-dir", session.create_tmp())
