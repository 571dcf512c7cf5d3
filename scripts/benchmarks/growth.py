"""How the cost of a sweep beside its measurement grows with the grid: widths, values, seeds and
depths, each swept alone, with a measurement of one number that costs next to nothing.

Costs are processor seconds of `sweep.run`, for values and seeds, whose grid is one program, less
those of a sweep of one point. Each width of the plan "exact" and each depth is a program of its
own. Exponents are `fits.fit_power_law` on repeated runs; the last column is what one more point
costs.

    python scripts/benchmarks/growth.py [--smoke]
"""

import argparse
import os
from time import process_time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array
from timing import machine, table

from specjax import fits, sweep
from specjax.sizes import AnySize

KEY = jax.random.key(0)
AXES = {
    "values": (1000, 3000, 10_000, 30_000),
    "seeds": (10_000, 30_000, 100_000, 300_000),
    "widths": (2, 4, 8, 16),
    "depths": (2, 4, 8, 16),
}
"""How many points of each axis."""


def product(key: Array, a: float = 1.0, d: AnySize = 2, depth: int = 1) -> dict[str, Array]:
    """A number times the mean of `d` draws, which all are scaled `depth` times."""
    x = jax.random.normal(key, (d,))
    for _ in range(depth):
        x = 0.5 * x
    return {"x": a * jnp.mean(x)}


def once(axis: str, count: int) -> None:
    """One sweep with `count` points of an axis."""
    over: dict[str, Any] = {
        "values": {"a": sweep.values(*np.linspace(1, 2, max(count, 2)))},
        "seeds": {"a": sweep.values(1.0)},
        "widths": {"d": sweep.widths(*range(2, 2 + count))},
        "depths": {"depth": sweep.choices(*range(1, 1 + count))},
    }[axis]
    seeds = count if axis == "seeds" else 2
    sweep.run(product, over, num_seeds=seeds, key=KEY, plan="exact", progress=False)


def costs(axis: str, counts: tuple[int, ...], repeats: int) -> xr.DataArray:
    """Processor seconds over (count, seed), a seed being a round of all counts."""
    taken = np.zeros((len(counts), repeats))
    fixed = axis in ("values", "seeds")
    for r in range(repeats):
        for i, count in enumerate((1, *counts) if fixed else counts):
            start = process_time()
            once(axis, count)
            seconds = process_time() - start
            if not fixed:
                taken[i, r] = seconds
            elif i == 0:
                compiling = seconds
            else:
                taken[i - 1, r] = max(seconds - compiling, 1e-4)
    return xr.DataArray(taken, {"count": list(counts), "seed": range(repeats)}, ("count", "seed"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--smoke", action="store_true", help="small grids, seconds in all")
    parser.add_argument("--repeats", type=int, default=5, help="rounds of all sizes of a grid")
    options = parser.parse_args()
    os.environ["SPECJAX_COMPILATION_CACHE"] = "off"
    print(f"{machine('specjax', 'jax', 'numpy')}\n")
    rows = [("points", "from", "to", "s at the most", "exponent", "95 %", "ms for one more")]
    for axis, counts in AXES.items():
        sizes = tuple(count // 1000 or count for count in counts[:3]) if options.smoke else counts
        once(axis, sizes[0])
        found = costs(axis, sizes, 2 if options.smoke else options.repeats)
        means = found.mean("seed").values
        exponent, interval = "-", "-"
        if not options.smoke:
            fit = fits.fit_power_law(found, "count")
            exponent = f"{fit.exponent:.2f}"
            interval = f"{fit.interval[0]:.2f} to {fit.interval[1]:.2f}"
        more = 1e3 * (means[-1] - means[0]) / (sizes[-1] - sizes[0])
        row = (axis, f"{sizes[0]}", f"{sizes[-1]}", f"{means[-1]:.3f}", exponent, interval)
        rows.append((*row, f"{more:.4f}"))
    print(table(rows))


if __name__ == "__main__":
    main()
