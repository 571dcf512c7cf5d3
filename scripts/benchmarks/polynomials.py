"""Muon's five quintic steps beside `PolarExpress(5)`, which has as many products, and beside five
cubic steps, which have ten in the place of fifteen: what each leaves of the spectrum, and its time.

Matrices are U S Vᵀ with Haar-distributed factors and rank r, of a named spectrum S or a geometric
one from 1 to 1/κ. For the output O of each method are printed

* largest: the largest |s - 1| over the r singular values s of O;
* distance: ‖O - U Vᵀ‖_F / √r, and alignment: ⟨O, U Vᵀ⟩ / r, as in
  `spectral.polar_error.factor_error`.

"float32" is the method on a float32 matrix, "bfloat16" the same with operands of products rounded
to bfloat16 (`operands=jnp.bfloat16`). Errors are means over `--seeds` matrices. Times are minima
over `--rounds` rounds; they are printed as ratios to those of Muon's steps.

    python scripts/benchmarks/polynomials.py [--smoke]
"""

import argparse
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from timing import machine, minima, table

from specjax.spectral import NewtonSchulz, PolarExpress, polar
from specjax.spectral.polynomials import CUBIC5

QUINTIC = "NewtonSchulz(5)"
METHODS = {
    QUINTIC: partial(NewtonSchulz, 5),
    "PolarExpress(5)": partial(PolarExpress, 5),
    "cubic5": partial(NewtonSchulz, 5, CUBIC5),
}
OPERANDS = {"float32": None, "bfloat16": jnp.bfloat16}


class Error(NamedTuple):
    """What a method leaves of one matrix; see the text of this script."""

    largest: float
    distance: float
    alignment: float


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, seconds in all")
    parser.add_argument("--size", type=int, default=256, help="rows of the square matrices")
    parser.add_argument("--seeds", type=int, default=4, help="matrices of each spectrum")
    parser.add_argument("--rounds", type=int, default=15, help="rounds of all methods")
    parser.add_argument(
        "--shapes", nargs="*", default=("256x256", "1024x1024", "256x1024"), help="m×n timed"
    )
    options = parser.parse_args()
    if options.smoke:
        options.size, options.seeds, options.rounds, options.shapes = 16, 1, 2, ("16x24",)
    return options


def spectra(n: int) -> dict[str, np.ndarray]:
    """Singular values by name; zeros at the end are no part of the rank."""
    k = np.arange(1, n + 1)
    gaussian = np.random.default_rng(0).standard_normal((n, n))
    named = {
        "Gaussian": np.linalg.svd(gaussian, compute_uv=False),
        "1/k": 1 / k,
        "1/k²": 1 / k**2,
        "four spikes": np.where(k <= 4, 1.0, 0.01),
        "rank n/4": np.where(k <= n // 4, 1.0 / k, 0.0),
    }
    return named | {
        f"κ = 1e{power}": 10.0 ** -np.linspace(0, power, n) if power else np.ones(n)
        for power in range(7)
    }


def error(method: str, dtype: str, s: np.ndarray, seed: int) -> Error:
    """Of one matrix with the singular values s, in float64 from the output on."""
    rng = np.random.default_rng(seed)
    u, v = (np.linalg.qr(rng.standard_normal((len(s), len(s))))[0] for _ in range(2))
    x = jnp.asarray((u * s) @ v.T, jnp.float32)
    rank = int(np.sum(s > 0))
    factor = polar(x, METHODS[method](operands=OPERANDS[dtype]))
    output = np.asarray(factor, np.float64)
    exact = u[:, :rank] @ v[:, :rank].T
    values = np.linalg.svd(output, compute_uv=False)[:rank]
    return Error(
        float(np.max(np.abs(values - 1))),
        float(np.linalg.norm(output - exact) / np.sqrt(rank)),
        float(np.sum(output * exact) / rank),
    )


def errors(size: int, seeds: int) -> dict[tuple[str, str], dict[str, Error]]:
    """Means over matrices, by spectrum and dtype, and then by method."""
    found: dict[tuple[str, str], dict[str, Error]] = {}
    for name, s in spectra(size).items():
        for dtype in OPERANDS:
            found[name, dtype] = {
                method: Error(
                    *np.mean([error(method, dtype, s, seed) for seed in range(seeds)], axis=0)
                )
                for method in METHODS
            }
    return found


def table_of(found: Mapping[tuple[str, str], Mapping[str, Error]], dtype: str) -> str:
    rows = [
        (name, *(f"{getattr(each, field):.3f}" for field in Error._fields for each in row.values()))
        for (name, of), row in found.items()
        if of == dtype
    ]
    header = (f"{field}, {method}" for field in Error._fields for method in METHODS)
    return table((("spectrum", *header), *rows))


def times(shapes: list[str], rounds: int) -> str:
    rows = []
    for shape in shapes:
        m, n = map(int, shape.split("x"))
        x = jnp.asarray(np.random.default_rng(0).standard_normal((m, n)), jnp.float32)
        for dtype, operands in OPERANDS.items():
            calls = {
                name: partial(jax.jit(partial(polar, method=make(operands=operands))), x)
                for name, make in METHODS.items()
            }
            least = minima(calls, rounds)
            ratios = (f"{least[name] / least[QUINTIC]:.2f}" for name in METHODS)
            rows.append((f"{m}×{n}, {dtype}", f"{1e3 * least[QUINTIC]:.2f}", *ratios))
    return table((("m×n", f"{QUINTIC}, ms", *METHODS), *rows))


def main() -> None:
    options = arguments()
    print(machine("specjax", "jax"))
    found = errors(options.size, options.seeds)
    for dtype in OPERANDS:
        print(f"\n{options.size}×{options.size}, products in {dtype}")
        print(table_of(found, dtype))
    print("\nseconds, over those of NewtonSchulz(5)")
    print(times(options.shapes, options.rounds))


if __name__ == "__main__":
    main()
