"""docs/which-method.md runs and says what its comments claim; the tables that
docs/accuracy.md shows and links are those of scripts/maintain/accuracy_table.py.
"""

import re
from pathlib import Path

import jax
import pytest

from specjax.spectral import SVD, NewtonSchulz, PolarExpress
from specjax.spectral.polynomials import MUON, band
from tests.scripts import load_script

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "which-method.md"
TEXT = PAGE.read_text(encoding="utf-8")
TABLES = ROOT / "docs" / "accuracy.md"


@pytest.fixture(scope="module")
def script():
    """The script as a module."""
    return load_script("accuracy_table")


@pytest.fixture(scope="module")
def documented(script):
    """The cells of the tables by field, (dtype, method) and column."""
    block = TABLES.read_text(encoding="utf-8").split(script.BEGIN)[1].split(script.END)[0]
    block += script.DEFECTS.read_text(encoding="utf-8")
    tables = {}
    for field, lines in zip(
        ("distance", "defect"), re.findall(r"(?:^\|.*\n)+", block, re.MULTILINE), strict=True
    ):
        header, _, *rows = [
            [cell.strip(" `") for cell in line.strip("|\n").split("|")]
            for line in lines.splitlines()
        ]
        assert header == ["dtype of x", "method", *script.CASES]
        tables[field] = {
            (dtype, name): dict(zip(script.CASES, cells, strict=True))
            for dtype, name, *cells in rows
        }
    return tables


def test_the_tables_have_the_rows_that_the_script_makes(script, documented):
    expected = [("float64", name) for name in script.methods("float64")]
    for dtype in ("float32", "bfloat16"):
        expected += [(dtype, name) for name in (script.FLOOR, *script.methods(dtype))]
    for rows in documented.values():
        assert list(rows) == expected
        assert all(
            re.fullmatch(r"NaN|0|\d\.\d\d|\de-\d\d", cell)
            for row in rows.values()
            for cell in row.values()
        )


# Each is one compilation for each of the two shapes of matrices.
@pytest.mark.integration
@pytest.mark.parametrize(
    "row",
    [
        ("float64", "QDWH()"),
        ("float32", "NewtonSchulz(5)"),
        ("float32", "PolarExpress(8, operands=bfloat16)"),
        ("bfloat16", "PolarExpress(5)"),
        ("bfloat16", "rounding of x alone"),
    ],
    ids=" ".join,
)
def test_rows_come_out_as_printed(script, documented, row):
    with jax.enable_x64(True):
        found = script.errors(*row)
    for field, rows in documented.items():
        for label, cell in rows[row].items():
            measured, printed = float(getattr(found[label], field)), float(cell)
            if printed >= 0.01:
                assert measured == pytest.approx(printed, abs=0.006, rel=0.05), (field, label)
            else:
                assert printed / 4 <= measured <= 4 * printed, (field, label)


def test_a_cell_is_written_with_the_digits_that_hold(script):
    cells = {
        0.314159: "0.31",
        1.0: "1.00",
        0.0099: "1e-02",
        3.14e-7: "3e-07",
        0.0: "0",
        float("nan"): "NaN",
    }
    assert {value: script.written(value) for value in cells} == cells


def test_the_rules_of_the_page_are_in_its_tables(documented):
    distance = {
        row: {k: float(v) for k, v in cells.items()}
        for row, cells in documented["distance"].items()
    }
    muon, express = distance["float32", "NewtonSchulz(5)"], distance["float32", "PolarExpress(5)"]
    assert (muon["κ = 1"], muon["1e6"]) == (0.31, 0.71)
    assert express["1e3"] <= 0.55 * muon["1e3"]
    assert express["1e6"] > 0.9 * muon["1e6"]
    floor = distance["bfloat16", "rounding of x alone"]
    assert (floor["1e3"], floor["1e6"]) == (0.05, 0.84)
    assert (distance["float32", "QDWH()"]["1e6"], distance["float32", "SVD()"]["1e6"]) == (
        0.33,
        0.40,
    )
    low_rank = {
        method: distance["bfloat16", method]["1e3, rank 32"]
        for _, method in distance
        if "(" in method and "operands" not in method
    }
    assert low_rank["QDWH()"] > 0.9
    assert (low_rank["NewtonSchulz(5)"], low_rank["PolarExpress(5)"]) == (0.29, 0.21)
    assert distance["float64", "PolarExpress(12, 5e-7)"]["1e6"] < 1e-5
    # Scale invariance: a tiny and a huge norm change nothing but rounding.
    for cells in distance.values():
        for norm in ("1e3, norm 1e-30", "1e3, norm 1e30"):
            assert cells[norm] == pytest.approx(cells["1e3"], rel=0.5)


def test_what_the_page_says_of_bands():
    low, high = band(NewtonSchulz(5).polynomials(), 1e-2)
    assert (round(low, 2), round(high, 2)) == (0.68, 1.13)
    assert band(PolarExpress(8).polynomials(), 1e-3) == pytest.approx((1, 1), abs=1e-6)
    assert round(band(PolarExpress(8).polynomials(), 1e-5)[0], 3) == 0.065
    assert band(PolarExpress(12, 5e-7).polynomials(), 1e-6) == pytest.approx((1, 1), abs=1e-5)
    assert NewtonSchulz(5).coefficients == MUON
    assert SVD().rtol is None


@pytest.mark.integration
def test_the_code_runs_from_top_to_bottom(capsys):
    names = {}
    for code in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL):
        exec(compile(code, str(PAGE), "exec"), names)
    assert "alignment" in capsys.readouterr().out
    found = names["found"]
    assert found.exact.exponent == pytest.approx(1, abs=1e-9)
    # Muon's steps bend it, by more than the noise.
    assert found.interval[1] < -0.1
    assert found.fitted.exponent < 0.9


def test_the_pages_it_names_exist():
    links = re.findall(r"\]\((?!http)([^)#]+\.md)", TEXT + TABLES.read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if not (PAGE.parent / link).exists()] == []
