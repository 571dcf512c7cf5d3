"""How accurate each polar method is: method × condition number × dtype, as two Markdown tables.

    python scripts/maintain/accuracy_table.py          # prints them
    python scripts/maintain/accuracy_table.py --write  # into docs/accuracy.md and its file

x = U diag(s) Vᵀ with Haar-distributed U and V and singular values in geometric progression from 1
to 1/κ, made in float64 and rounded to the dtype of the row, is what a method gets. U Vᵀ is what its
factor is held against; so an error contains what the rounding of x has lost before the method
began. For float32 and bfloat16 the row "rounding of x alone" says how much that is: it is the
float64 factor of the rounded matrix. In float64 it is about 1e-16 κ, and no method can be better.
It takes about a minute.
"""

import argparse
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from specjax import spectral
from specjax.spectral import QDWH, SVD, Newton, NewtonSchulz, PolarExpress
from specjax.spectral.polar_error import PolarError
from specjax.spectral.polynomials import CUBIC

PAGE = Path(__file__).parents[2] / "docs" / "accuracy.md"
DEFECTS = PAGE.parent / "benchmarks" / "accuracy-defects.txt"
BEGIN, END = "<!-- accuracy tables -->\n", "<!-- end of accuracy tables -->\n"
ORDER = 64
FLOOR = "rounding of x alone"


class Case(NamedTuple):
    """A column: `rank` singular values from 1 to 1/`condition` and zeros behind them, all times
    `norm`.
    """

    condition: float
    rank: int = ORDER
    norm: float = 1.0
    columns: int = ORDER

    def matrices(self) -> tuple[np.ndarray, np.ndarray]:
        """U diag(s) Vᵀ and U Vᵀ, of shape (ORDER, columns)."""
        rng = np.random.default_rng(0)
        u, v = (_orthogonal(n, rng)[:, : self.rank] for n in (ORDER, self.columns))
        s = self.norm * np.geomspace(1, 1 / self.condition, self.rank)
        return (u * s) @ v.T, u @ v.T


def _orthogonal(n: int, rng: np.random.Generator) -> np.ndarray:
    """A Haar-distributed orthogonal matrix (Mezzadri 2007)."""
    q, r = np.linalg.qr(rng.standard_normal((n, n)))
    return q * np.sign(np.diag(r))


CASES = {
    "κ = 1": Case(1),
    "1e3": Case(1e3),
    "1e6": Case(1e6),
    "1e9": Case(1e9),
    "1e12": Case(1e12),
    "1e3, rank 32": Case(1e3, rank=32),
    "1e3, norm 1e-30": Case(1e3, norm=1e-30),
    "1e3, norm 1e30": Case(1e3, norm=1e30),
    "1e3, 64 × 256": Case(1e3, columns=256),
    "1e6, 64 × 256": Case(1e6, columns=256),
}
DTYPES = {"float64": jnp.float64, "float32": jnp.float32, "bfloat16": jnp.bfloat16}
METHODS: dict[str, Callable[[Array], Array]] = {
    "SVD()": SVD(),
    "QDWH()": QDWH(),
    "Newton()": Newton(),
    "PolarExpress(12, 5e-7)": PolarExpress(12, 5e-7),
    "PolarExpress(8)": PolarExpress(8),
    "PolarExpress(5)": PolarExpress(5),
    "NewtonSchulz(30, CUBIC)": NewtonSchulz(30, CUBIC),
    "NewtonSchulz(5)": NewtonSchulz(5),
}
ROUNDED = {
    "PolarExpress(8, operands=bfloat16)": PolarExpress(8, operands=jnp.bfloat16),
    "NewtonSchulz(5, operands=bfloat16)": NewtonSchulz(5, operands=jnp.bfloat16),
}


def methods(dtype: str) -> dict[str, Callable[[Array], Array]]:
    """The rows of a dtype by name: rounded operands are an option for float32 matrices."""
    return METHODS | ROUNDED if dtype == "float32" else METHODS


def errors(dtype: str, name: str) -> dict[str, PolarError]:
    """The error of a method, or of the rounding of x alone, in every column; call it with float64
    enabled.
    """
    found: dict[str, PolarError] = {}
    # One call for all matrices of a shape.
    for columns in sorted({case.columns for case in CASES.values()}):
        labels = [label for label, case in CASES.items() if case.columns == columns]
        x, exact = (
            jnp.stack([jnp.asarray(m) for m in ms])
            for ms in zip(*(CASES[la].matrices() for la in labels), strict=True)
        )
        x = x.astype(DTYPES[dtype])
        factor = (
            _polar(x.astype(jnp.float64), SVD())
            if name == FLOOR
            else _polar(x, methods(dtype)[name])
        )
        batch = spectral.polar_error.factor_error(factor, exact)
        found |= {label: PolarError(*(part[i] for part in batch)) for i, label in enumerate(labels)}
    return {label: found[label] for label in CASES}


_polar = jax.jit(spectral.polar, static_argnums=1)


def written(value: float) -> str:
    """A cell: two digits from 0.01 up, below that one."""
    return (
        "NaN"
        if np.isnan(value)
        else f"{value:.2f}"
        if value >= 0.01
        else "0"
        if value == 0
        else f"{value:.0e}"
    )


def tables() -> tuple[str, str]:
    """In Markdown: the distance from U Vᵀ, and the defect."""
    rows: dict[tuple[str, str], dict[str, PolarError]] = {}
    for dtype in DTYPES:
        # In float64 the factor of the rounded matrix would be the method SVD() itself.
        names = methods(dtype) if dtype == "float64" else (FLOOR, *methods(dtype))
        for name in names:
            rows[dtype, name] = errors(dtype, name)
    return (
        f"Distance from the exact factor, ‖O - U Vᵀ‖_F / √rank:\n\n{_table(rows, 'distance')}",
        f"Defect, ‖O Oᵀ - U Uᵀ‖_F / √rank:\n\n{_table(rows, 'defect')}",
    )


def _table(rows: dict[tuple[str, str], dict[str, PolarError]], field: str) -> str:
    lines = [("dtype of x", "method", *CASES), ("---", "---", *("---:" for _ in CASES))]
    for (dtype, name), by_case in rows.items():
        cells = (written(float(getattr(error, field))) for error in by_case.values())
        lines.append((dtype, name if name == FLOOR else f"`{name}`", *cells))
    return "".join("|" + "|".join(line) + "|\n" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--write",
        action="store_true",
        help="replace the table in docs/accuracy.md, and the file of defects",
    )
    arguments = parser.parse_args()
    with jax.enable_x64(True):
        distance, defect = tables()
    if not arguments.write:
        print(distance, defect, sep="\n", end="")
        return
    page = PAGE.read_text(encoding="utf-8")
    block = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
    if not block.search(page):
        raise SystemExit(f"{PAGE} has no lines {BEGIN.strip()} and {END.strip()} to write between.")
    PAGE.write_text(block.sub(lambda _: f"{BEGIN}\n{distance}\n{END}", page), encoding="utf-8")
    DEFECTS.write_text(defect, encoding="utf-8")


if __name__ == "__main__":
    main()
