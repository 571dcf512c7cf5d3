"""`specjax sweep`: a user's function over seeds and sizes, with exponents, figure and data."""

import argparse
import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specjax.cli import _axis_syntax
from specjax.cli._errors import (
    UserError,
    memory_errors_in_one_sentence,
    one_line,
    value_errors_in_one_sentence,
)
from specjax.cli._parser import add_out, make_parser, parse_out
from specjax.cli._sweep_request import make_request
from specjax.cli._sweep_result import analyze
from specjax.cli._user_function import load_function, returning_dict, user_errors

if TYPE_CHECKING:
    import xarray as xr

    from specjax.sweep.axes import Single

EXAMPLE_FILE = "example_sweep.py"
EXAMPLE = '''\
"""How Muon's step compares with a gradient step as a layer of d x d gets wider."""

import jax.numpy as jnp

from specjax import sizes, spectral


def measure(key, d):  # d is an int, or a padded, traced size
    gradient = sizes.normal(key, (d, d))
    muon = jnp.vdot(gradient, spectral.polar(gradient))  # gain of a step of spectral norm 1
    sgd = jnp.sum(gradient**2) / spectral.spectral_norm(gradient)  # of a gradient step as long
    return {"muon": muon, "muon_over_sgd": muon / sgd}
'''
_EXAMPLE_ARGUMENTS = [f"{EXAMPLE_FILE}:measure", "--over", "d=16:256", "--seeds", "200"]
_DESCRIPTION = """\
Measure a function of your own over seeds and sizes in one call, and fit how it grows.

FUNCTION(key, **point) is a pure JAX function that returns a number, or a dict of arrays. It gets
sizes as ints or padded sizes (sample with `specjax.sizes`), values as scalars, choices unchanged.
The same command goes on where it was stopped; more seeds add to those that are stored."""
_EPILOG = (
    _axis_syntax.HELP
    + """

examples:
  specjax sweep --example
  specjax sweep net.py:measure --over d=16:512 --seeds 1000
  specjax sweep net.py:measure --over d=16:512 --output norm --exponent 2 --exponent 1.5
  specjax sweep net.py:measure --over d=16:512 --output norm --versus "mine=d*(d+1)" "book=d**2"
  specjax sweep net.py:loss --over d=16:256 rate=0.001:1:9 --optimum rate"""
)
_BY, _FITS = ("mean", "median", "log"), ("auto", "power-law", "subleading", "offset", "logarithm")


def sweep_function(arguments: list[str]) -> int:
    """Sweep the function that the arguments name, and print what its outputs do."""
    given = _parse(arguments)
    if given.example:
        given = _parse([*_write_example(), *(word for word in arguments if word != "--example")])
    if given.function is None:
        raise UserError(
            "The function comes first, as in `specjax sweep FILE.py:FUNCTION --over d=16:512`;"
            " `specjax sweep --example` writes a file to begin with."
        )
    axes = _axis_syntax.parse_axes(given.over, given.values, given.choices)
    if not axes:
        raise UserError("Say what to sweep, as in `--over d=16:512`.")
    module, function = load_function(given.function)
    request = make_request(axes, given, vars(module))
    folder = _make_folder(parse_out(given.out), given.function, function)
    with user_errors(f"{given.function} failed"), memory_errors_in_one_sentence():
        data = _run(returning_dict(function), axes, given, folder, module.__file__ or "")
    # The data are written before they are judged, which may be refused.
    _write(folder / "data.nc", lambda path: data.to_netcdf(path, engine="h5netcdf"))
    with value_errors_in_one_sentence():
        result = analyze(data, request)
    text = result.to_text(folder)
    _write(folder / "figure.png", result.save_figure)
    _write(folder / "summary.txt", lambda path: path.write_text(f"{text}\n", "utf-8"))
    if given.json:
        print(json.dumps(result.to_dict(folder), indent=1, allow_nan=False))
    else:
        print(text)
        if given.explain:
            from specjax import sweep

            print(f"\n{sweep.explain(data)}")
    return 0


def _parse(arguments: list[str]) -> argparse.Namespace:
    usage = "specjax sweep FILE:FUNCTION --over NAME=POINTS ... [--seeds N] [options]"
    parser = make_parser("specjax sweep", _DESCRIPTION, usage=usage, epilog=_EPILOG)
    parser.add_argument("function", metavar="FILE:FUNCTION", nargs="?", help="what to measure")
    lists: dict[str, Any] = {"action": "extend", "nargs": "+", "default": []}
    parser.add_argument("--over", metavar="NAME=POINTS", help="axes, see below", **lists)
    parser.add_argument("--values", metavar="NAME=POINTS", help="whole numbers as values", **lists)
    parser.add_argument("--choices", metavar="NAME=POINTS", help="Python numbers or names", **lists)
    parser.add_argument(
        "--seeds",
        metavar="N",
        type=_whole("--seeds", 1),
        default=100,
        help="random seeds at every point (default: 100)",
    )
    parser.add_argument(
        "--key",
        metavar="N",
        type=_whole("--key", 0),
        default=0,
        help="the root of all random numbers, jax.random.key(N) (default: 0)",
    )
    parser.add_argument("--output", metavar="NAME", help="fit these outputs alone", **lists)
    parser.add_argument("--along", metavar="NAME", help="the size to fit in (default: the first)")
    _add_choice(parser, "--fit", _FITS, "the model to fit")
    _add_choice(parser, "--by", _BY, "the center over seeds; median or log for heavy tails")
    parser.add_argument(
        "--exponent", metavar="B", help="judge the exponent B; others are its rivals", **lists
    )
    parser.add_argument(
        "--versus",
        metavar="NAME=FORMULA",
        help="judge a formula in the sizes, in NumPy and your file's names; others are its rivals",
        **lists,
    )
    parser.add_argument("--optimum", metavar="NAME", help="the value of least output at each size")
    _add_choice(parser, "--plan", ("auto", "padded", "exact"), "how sizes share compiled programs")
    parser.add_argument(
        "--moments", action="store_true", help="keep moments of batches, for millions of seeds"
    )
    parser.add_argument("--explain", action="store_true", help="print how the sweep was planned")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument(
        "--example", action="store_true", help=f"write {EXAMPLE_FILE} here, and run it"
    )
    add_out(parser, "folder of data, figure and store: DIR/sweeps/FILE-FUNCTION")
    return parser.parse(arguments)


def _add_choice(
    parser: argparse.ArgumentParser, flag: str, known: tuple[str, ...], text: str
) -> None:
    parser.add_argument(
        flag,
        choices=known,
        default=known[0],
        metavar=flag[2:].upper(),
        help=f"{text}: {', '.join(known)} (default: {known[0]})",
    )


def _whole(flag: str, least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise UserError(f"{flag} needs a whole number from {least} on, got {text!r}.")
        return int(text)

    return parse


def _write_example() -> list[str]:
    """Write the example, unless the user has a file of its name, and return its arguments."""
    path = Path(EXAMPLE_FILE)
    if not path.exists():
        path.write_text(EXAMPLE, encoding="utf-8")
        print(f"{EXAMPLE_FILE}, which this wrote:\n\n{EXAMPLE}")
    print(f"specjax sweep {' '.join(_EXAMPLE_ARGUMENTS)}\n", flush=True)
    return _EXAMPLE_ARGUMENTS


def _make_folder(out: Path, text: str, function: Callable[..., Any]) -> Path:
    place = Path(text.rpartition(":")[0] or text).stem
    folder = out / "sweeps" / f"{place}-{getattr(function, '__name__', 'function')}"
    from specjax.resume import make_folder

    with value_errors_in_one_sentence():
        make_folder(folder, "--out")
    return folder


def _run(
    measure: Callable[..., Mapping[str, Any]],
    axes: "Mapping[str, Single]",
    given: argparse.Namespace,
    folder: Path,
    file: str,
) -> "xr.Dataset":
    import jax

    from specjax import sweep
    from specjax.report.text_progress import log_progress
    from specjax.resume import StoreError

    try:
        with log_progress():
            return sweep.run(
                measure,
                axes,
                num_seeds=given.seeds,
                key=jax.random.key(given.key),
                plan=given.plan,
                reduce="moments" if given.moments else None,
                store=folder / _store_name(axes, given, file),
            )
    except StoreError as error:
        raise UserError(one_line(error)) from error


def _store_name(axes: "Mapping[str, Single]", given: argparse.Namespace, file: str) -> str:
    """A name for the text of the file and the axes, so that an edited function has a new store.

    A store whose program has changed by what the file imports refuses by itself.
    """
    text = Path(file).read_text(encoding="utf-8") if file else ""
    # Batches of moments belong to one number of seeds; single seeds are added to those there.
    batches = given.seeds if given.moments else 0
    identity = json.dumps([text, repr(dict(axes)), given.key, given.plan, batches])
    return f"store-{hashlib.sha256(identity.encode()).hexdigest()[:8]}"


def _write(path: Path, write: Callable[[Path], Any]) -> None:
    """Write a file under another name, then move it to its place."""
    # The end of the name decides the format of a figure.
    draft = path.with_name(f".draft-{path.name}")
    try:
        write(draft)
        draft.replace(path)
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error.strerror or error}).") from error
    finally:
        draft.unlink(missing_ok=True)
