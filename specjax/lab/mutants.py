"""Mutants: the same data, or the same closed forms, with one thing wrong, to see which statements
notice.

A confirmed statement that stays confirmed on a mutant that changes its numbers does not depend on
what the mutant destroys: on the order of its labels, on the size of its effect, or on a formula.
"""

import contextlib
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import xarray as xr

from specjax.arguments import checked
from specjax.lab._statement import Statement
from specjax.lab.outcome import NOT_SHARP, Finding

FACTOR = 1.1
"""A mutated formula returns this times its values."""
Data = Any
_Rng = np.random.Generator


class MutantRow(NamedTuple):
    """A confirmed statement on one mutant: the verdict there, and whether it should have changed.

    `outcome` is "error" where the statement cannot be judged on the mutant, and "not sharp here"
    where a bound that says so of the data themselves holds on it.
    """

    experiment: str
    statement: str
    mutant: str
    outcome: str

    @property
    def survived(self) -> bool:
        """Whether the statement is confirmed on wrong data too."""
        return self.outcome == "confirmed"


@checked
def mutant_rows(
    experiment: str, statements: Sequence[Statement], config: Any, data: Any, seed: int = 0
) -> list[MutantRow]:
    """A row for each confirmed statement and each mutant that changes its numbers.

    Mutants of data, in all variables at once: noise with the mean and spread of a variable; values
    permuted within each sample; the effect halved and doubled, which is the ratio of each value to
    the sample's geometric mean to the power 1/2 and 2, or for values of both signs their distance
    from its mean times these. A size of the effect that moves a threshold's estimates farther to
    the right side is no mutant of that statement and has no row. Mutants of formulas: each function
    of `specjax.theory` that a statement calls returns 1.1 times its value.

    Args:
        experiment: The name that the rows bear.
        statements: The statements; those that `data` do not confirm have no rows.
        config: The configuration of the run.
        data: The data of the run.
        seed: Seed of noise and permutations.

    Examples:
        >>> import numpy as np
        >>> from specjax import lab
        >>> from specjax.lab import mutants
        >>> @lab.statement("eq-1", "Muon is ahead.", controls={"none": lambda _, data: 0 * data})
        ... def ahead(config, data):
        ...     return lab.ahead(data["loss"][:, 0], data["loss"][:, 1], least=0)
        >>> loss = np.random.default_rng(0).normal([2.0, 1.0], 0.1, (50, 2))
        >>> data = xr.Dataset({"loss": (("seed", "optimizer"), loss)})
        >>> rows = mutants.mutant_rows("mine", [ahead], None, data)
        >>> [row.mutant for row in rows if row.survived]
        ['half the effect']
    """
    confirmed = []
    for each in statements:
        found = each.find(config, data)
        if found.verdict == "confirmed":
            confirmed.append((each, found))
    rows = []
    for name, change in DATA_MUTANTS.items():
        changed = _change(data, change, np.random.default_rng(seed))
        rows += [
            MutantRow(experiment, each.name, name, outcome)
            for each, found in confirmed
            if (outcome := _outcome(each, found, config, changed, name in SIZES)) is not None
        ]
    for each, found in confirmed:
        rows += [
            MutantRow(experiment, each.name, name, outcome)
            for name, outcome in _formulas(each, found, config, data)
        ]
    return rows


def _outcome(
    statement: Statement, found: Finding, config: Any, data: Data, sized: bool = False
) -> str | None:
    """The verdict on a mutant. None where it is no mutant: its numbers are those of the data
    themselves, or, of another size of the effect (`sized`), more on the right side than they.
    """
    try:
        mutated = statement.find(config, data)
    except (ValueError, KeyError, ArithmeticError, TypeError, IndexError):
        return "error"
    if _same(mutated, found):
        return None
    if sized and statement.relation(config, data).is_farther(mutated, found):
        return None
    if mutated.verdict == "confirmed" and NOT_SHARP in found.reason:
        return "not sharp here"
    return mutated.verdict


def _same(first: Finding, second: Finding) -> bool:
    """Whether two findings have equal numbers, up to rounding, and reasons, which are where a bound
    has its margin.
    """
    one, other = (
        np.array([[at.estimate, at.low, at.high, at.compared] for at in found.points])
        for found in (first, second)
    )
    same = one.shape == other.shape and np.allclose(
        one, other, rtol=1e-9, atol=1e-12, equal_nan=True
    )
    return bool(same) and first.reason == second.reason


def _change(data: Data, change: Callable[[np.ndarray, _Rng], np.ndarray], rng: _Rng) -> Data:
    if isinstance(data, xr.Dataset):
        return data.assign(
            {name: _changed(values, change, rng) for name, values in data.data_vars.items()}
        )
    return {name: _change(each, change, rng) for name, each in data.items()}


def _changed(
    values: xr.DataArray, change: Callable[[np.ndarray, _Rng], np.ndarray], rng: _Rng
) -> xr.DataArray:
    """The variable with each sample, a row of an array, changed."""
    if values.dtype.kind not in "fiub" or values.ndim == 0:
        return values
    dim = next((d for d in ("seed", "batch") if d in values.dims), None)
    ordered = values if dim is None else values.transpose(dim, ...)
    rows = ordered.values.reshape(1 if dim is None else ordered.shape[0], -1)
    changed = np.asarray(change(rows, rng)).reshape(ordered.shape)
    return ordered.copy(data=changed).transpose(*values.dims)


def _noise(rows: np.ndarray, rng: _Rng) -> np.ndarray:
    if rows.dtype.kind == "b":
        return rng.random(rows.shape) < rows.mean()
    finite = rows[np.isfinite(rows)]
    if not finite.size:
        return rows
    return rng.normal(finite.mean(), finite.std(), rows.shape).astype(float)


def _permuted(rows: np.ndarray, rng: _Rng) -> np.ndarray:
    return rng.permuted(rows, axis=1)


def _stretched(factor: float) -> Callable[[np.ndarray, _Rng], np.ndarray]:
    def change(rows: np.ndarray, _: _Rng) -> np.ndarray:
        if rows.dtype.kind == "b":
            return rows
        values = rows.astype(float)
        with np.errstate(all="ignore"):
            if (values[np.isfinite(values)] > 0).all():
                logs = np.log(values)
                middle = np.nanmean(logs, axis=1, keepdims=True)
                return np.exp(middle + factor * (logs - middle))
            middle = np.nanmean(values, axis=1, keepdims=True)
            return middle + factor * (values - middle)

    return change


DATA_MUTANTS: dict[str, Callable[[np.ndarray, _Rng], np.ndarray]] = {
    "noise of the same mean": _noise,
    "labels permuted": _permuted,
    "half the effect": _stretched(0.5),
    "twice the effect": _stretched(2.0),
}
"""Changes of the samples of a variable, the rows of an array, by name."""
SIZES = frozenset({"half the effect", "twice the effect"})


def _formulas(
    statement: Statement, found: Finding, config: Any, data: Data
) -> Iterator[tuple[str, str]]:
    """Each formula that the statement calls, and the verdict with `FACTOR` times its values."""
    called: set[tuple[Any, str]] = set()
    with contextlib.ExitStack() as patches:
        for module, name in _theory():
            patches.enter_context(_patched(module, name, lambda value: value, called))
        statement.find(config, data)
    for module, name in sorted(called, key=lambda each: (each[0].__name__, each[1])):
        with _patched(module, name, _scale_all, set()):
            outcome = _outcome(statement, found, config, data)
        if outcome is not None:
            yield f"{module.__name__.removeprefix('specjax.theory.')}.{name} × {FACTOR}", outcome


def _theory() -> list[tuple[Any, str]]:
    """The public functions of `specjax.theory`, by the module that defines them."""
    theory = importlib.import_module("specjax.theory")
    modules = [
        importlib.import_module(found.name)
        for found in pkgutil.walk_packages(theory.__path__, "specjax.theory.")
    ]
    return [
        (module, name)
        for module in modules
        for name, value in vars(module).items()
        if inspect.isfunction(value)
        and value.__module__ == module.__name__
        and not name.startswith("_")
    ]


@contextlib.contextmanager
def _patched(
    module: Any, name: str, change: Callable[[Any], Any], called: set[tuple[Any, str]]
) -> Iterator[None]:
    """The function of a module, noting its calls, with a changed value."""
    function = getattr(module, name)

    def patched(*args: Any, **options: Any) -> Any:
        called.add((module, name))
        return change(function(*args, **options))

    setattr(module, name, patched)
    try:
        yield
    finally:
        setattr(module, name, function)


def _scale_all(value: Any) -> Any:
    """The numbers of a value, of a list, of a tuple or of a named tuple times `FACTOR`."""
    if isinstance(value, list):
        return [_scale_all(each) for each in value]
    if isinstance(value, tuple):
        parts = [_scale_all(each) for each in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, dict):
        return {name: _scale_all(each) for name, each in value.items()}
    if isinstance(value, bool | str) or value is None or callable(value):
        return value
    # A closed form has float64 values even where JAX's default is float32.
    with jax.enable_x64(True):
        return FACTOR * value
