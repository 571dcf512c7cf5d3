"""Splits a fitted width exponent into the share of the model and the share of the
orthogonalizer.

An iteration with a fixed number of steps orthogonalizes wide matrices worse than narrow ones,
because their small singular values are smaller relative to the norm it divides by. This bends every
later measurement. A measurement that takes the method as an argument, and returns the matrices it
orthogonalizes, can be repeated with the exact factor on the same samples:

    def measure(key, method, width):
        momentum = ...
        step = spectral.polar(momentum, method)
        return {"change": ...}, momentum

    over, methods = {"width": sweep.widths(32, 64, 128)}, {"muon": NewtonSchulz()}
    data = attribute(measure, over=over, methods=methods, num_seeds=100, key=key)
    data["polar_error.alignment"].sel(orthogonalizer="muon")  # the method's error at every width
    exponent_shift(data["change"], "width", orthogonalizer="muon")  # how it moved the exponent
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any

import jax
import numpy as np
import xarray as xr
from jaxtyping import Array, Float, Key

from specjax import fits, spectral, sweep
from specjax.arguments import checked
from specjax.fits import Fit
from specjax.sweep.axes import Over
from specjax.sweep.failures import FAILED

ORTHOGONALIZER = "orthogonalizer"
"""The dimension of the methods. It is not called "method", since xarray's `sel` has an argument of
that name.
"""
EXACT = "exact"
"""The name of the reference in this dimension: the polar factor by `SVD()`."""
ERROR = "polar_error"
"""The name under which errors are reported: "polar_error.alignment", ..., see
`specjax.spectral.polar_error.PolarError`.
"""

Method = Callable[[Array], Array]


@dataclass(frozen=True, eq=False)
class ExponentShift:
    """The shift of an exponent by a method: `shift` ± 4 `stderr`, which is `interval`.

    `shift` is the exponent of the ratio of the two means, with the method over exact, by least
    squares with equal weights. `fitted` and `exact` are the fits of both sides. Where both sides
    are power laws the difference of their exponents equals the shift; where a curve bends the two
    differ, since each fit is weighted by its own noise.
    """

    fitted: Fit
    exact: Fit
    shift: float
    stderr: float
    interval: tuple[float, float]


@checked
def with_polar_error(measure: Callable[..., Any], method: Method) -> Callable[..., dict[str, Any]]:
    """Turns `measure` into a measurement for `sweep.run` that uses `method` and reports the
    method's error.

    Args:
        measure: A pure function `measure(key, method, **point)` that orthogonalizes with
            `spectral.polar(x, method)` and returns a pair: a dict of arrays, as for `sweep.run`,
            and the matrices it orthogonalized, an array (..., m, n) or a nested dict of such. In
            training, return those of the last step, or a few on the way: each costs a singular
            value decomposition.
        method: A method of `spectral.polar`.

    Returns:
        `measure(key, **point)`, which returns the outputs of the given function and, under
        "polar_error", the fields of `spectral.polar_error.PolarError` with the leading axes of the
        matrices (under the names of the matrices if they were a dict).

    Raises:
        ValueError: when it is traced, if `measure` does not return such a pair, or has an output
            called "polar_error".
    """
    given = partial(measure, method=method)

    @wraps(given)
    def reported(key: Array, **point: Any) -> dict[str, Any]:
        result = given(key, **point)
        if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], Mapping)):
            raise ValueError(
                "measure needs to return its outputs and the matrices it orthogonalized, got a"
                f" {type(result).__name__}; write e.g. return {{'loss': loss}}, momentum."
            )
        outputs, matrices = result
        if ERROR in outputs:
            raise ValueError(
                f"The output name {ERROR!r} is taken by the report of the method's error; rename"
                " the output."
            )
        errors = jax.tree.map(
            lambda x: spectral.polar_error.method_error(x, method)._asdict(), matrices
        )
        return {**outputs, ERROR: errors}

    return reported


@checked
def attribute(
    measure: Callable[..., Any],
    over: Over,
    *,
    methods: Mapping[str, Method],
    num_seeds: int,
    key: Key[Array, ""],
) -> xr.Dataset:
    """Sweeps `measure` with every method and with the exact polar factor, on the same seeds, in one
    program.

    Args:
        measure: As for `with_polar_error`.
        over: The swept arguments, as for `sweep.run`.
        methods: The methods by name.
        num_seeds: How many seeds, as for `sweep.run`.
        key: The key into which each seed is folded.

    Returns:
        The dataset of `sweep.run`, errors of the methods included, with a first dimension
        "orthogonalizer": the names and last "exact". A seed that failed with one method counts as
        failed for all, so that comparisons stay paired.

    Raises:
        ValueError: without a method, for a name that is empty, is "exact" or has a "." or "/", and
            as `sweep.run` and `with_polar_error`.
    """
    if not methods:
        raise ValueError(
            "attribute needs at least one method, got none; write e.g. methods={'muon':"
            " NewtonSchulz()}."
        )
    for name in methods:
        if not isinstance(name, str) or not name or set("./") & set(name) or name == EXACT:
            raise ValueError(
                f"A method needs a non-empty name without '.' and '/' other than {EXACT!r}, got"
                f" {name!r}; rename it."
            )
    for name in ("method", ORTHOGONALIZER):
        if name in over:
            raise ValueError(
                f"The name {name!r} belongs to the attribution and cannot be swept; give the"
                " argument another name."
            )
    every: dict[str, Method] = {**methods, EXACT: spectral.SVD()}
    parts = {name: with_polar_error(measure, method) for name, method in every.items()}

    @wraps(parts[EXACT])
    def together(key: Array, **point: Any) -> dict[str, Any]:
        return {name: part(key, **point) for name, part in parts.items()}

    data = sweep.run(together, over, num_seeds=num_seeds, key=key)
    return _along_methods(data, list(parts))


@checked
def exponent_shift(
    data: xr.DataArray, dim: str, *, orthogonalizer: str, resamples: int = 1000, seed: int = 0
) -> ExponentShift:
    """The shift of the exponent of `data` in `dim` by an `orthogonalizer`, relative to the exact
    factor.

    Seeds are resampled for both sides at once, all widths of a seed together: the variation that
    both sides share, that of the samples, cancels.

    Args:
        data: Dimensions exactly "orthogonalizer", `dim` and "seed", e.g. `attribute(...)["loss"]`.
        dim: The dimension that is x; at least two widths.
        orthogonalizer: The entry of that dimension to compare with "exact".
        resamples: Bootstrap resamples of the seeds.
        seed: Seed of the resampling.

    Raises:
        ValueError: for an unknown method, and as `fits.fit_power_law`.
    """
    known = data[ORTHOGONALIZER].values.tolist() if ORTHOGONALIZER in data.dims else []
    if orthogonalizer not in known or EXACT not in known:
        raise ValueError(
            f"data needs {orthogonalizer!r} and {EXACT!r} along {ORTHOGONALIZER!r}, got {known};"
            " pass an output of attribute."
        )
    sides = [data.sel({ORTHOGONALIZER: name}, drop=True) for name in (orthogonalizer, EXACT)]
    fitted, exact = (
        fits.fit_power_law(side, dim, resamples=resamples, seed=seed) for side in sides
    )
    y = np.stack(
        [side.sortby(dim).transpose(dim, "seed").values.astype(np.float64) for side in sides]
    )
    log_x = np.log(fitted.widths)
    weights = (log_x - log_x.mean()) / np.sum((log_x - log_x.mean()) ** 2)

    def shift(seeds: slice | np.ndarray) -> float:
        log_means: Float[np.ndarray, "2 widths"] = np.log(y[:, :, seeds].mean(axis=2))
        return float(weights @ (log_means[0] - log_means[1]))

    n = y.shape[2]
    rng = np.random.default_rng(seed)
    replicates = [shift(rng.integers(n, size=(n,))) for _ in range(resamples)]
    # A resample has (n - 1)/n of the variance that it estimates.
    stderr = float(np.std(replicates) * np.sqrt(n / (n - 1)))
    measured = shift(slice(None))
    return ExponentShift(
        fitted, exact, measured, stderr, (measured - 4 * stderr, measured + 4 * stderr)
    )


def _along_methods(data: xr.Dataset, names: list[str]) -> xr.Dataset:
    """Joins the outputs "method.output" into outputs with a dimension of methods."""
    label = xr.DataArray(names, dims=ORTHOGONALIZER, name=ORTHOGONALIZER)
    own = [
        str(name).removeprefix(f"{EXACT}.")
        for name in data.data_vars
        if str(name).startswith(f"{EXACT}.")
    ]
    shared = {name: data[name] for name in data.data_vars if name == FAILED}
    outputs = {
        output: xr.concat(
            [_renamed(data[f"{name}.{output}"], f"{name}.") for name in names], label, join="exact"
        )
        for output in own
    }
    return xr.Dataset({**outputs, **shared}, attrs=data.attrs)


def _renamed(array: xr.DataArray, prefix: str) -> xr.DataArray:
    dims = {dim: str(dim).removeprefix(prefix) for dim in array.dims}
    return array.rename(str(array.name).removeprefix(prefix)).rename(dims)
