"""The pages of the notebooks: each docs/notebooks/NAME.py is run, and NAME.md beside it shows its
text, its code and its output.

python scripts/maintain/notebook_pages.py            # all of them
python scripts/maintain/notebook_pages.py NAME ...  # some; --out DIR writes elsewhere
"""

import argparse
import io
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
from gallery import shrunk

DOCS = Path(__file__).parents[2] / "docs"
NOTEBOOKS = DOCS / "notebooks"
PICTURES = Path("images") / "notebooks"
ORIGIN = """
*This page shows the notebook [{name}.py]({name}.py) with its output.
[Scripts and notebooks](../examples/index.md) says how to run it.*
"""


def cells(source: str) -> Iterator[tuple[bool, str]]:
    """Whether a cell is text, and what is in it, for a Python file in which `# %%` begins a
    cell.
    """
    _, *parts = re.split(r"(?m)^# %%", source)
    for part in parts:
        kind, _, body = part.partition("\n")
        is_text = kind.strip() == "[markdown]"
        yield is_text, re.sub(r"(?m)^# ?", "", body).strip() if is_text else body.strip()


def printed(code: str, names: dict[str, Any], title: str) -> str:
    """What a cell prints, run in the names that earlier cells have left."""
    with redirect_stdout(io.StringIO()) as out:
        exec(compile(code, title, "exec"), names)
    return out.getvalue().rstrip()


def drawn(out: Path, name: str, before: int) -> Iterator[Path]:
    """The figures that are open, as small pictures, whose numbers go on after `before`; they are
    closed.
    """
    for count, number in enumerate(plt.get_fignums(), before + 1):
        picture = PICTURES / f"{name}-{count}.png"
        (out / PICTURES).mkdir(parents=True, exist_ok=True)
        whole = io.BytesIO()
        plt.figure(number).savefig(whole, dpi=120)
        shrunk(whole).save(out / picture, optimize=True)
        plt.close(number)
        yield picture


def page(name: str, out: Path) -> str:
    """The text of the page of a notebook; its pictures are written below the folder `out`."""
    parts: list[str] = []
    names: dict[str, Any] = {"__name__": "__main__"}
    pictures = 0
    for is_text, body in cells((NOTEBOOKS / f"{name}.py").read_text(encoding="utf-8")):
        if is_text:
            parts.append(body)
            continue
        parts.append(f"```python\n{body}\n```")
        if text := printed(body, names, name):
            parts.append(f"```text\n{text}\n```")
        for picture in drawn(out, name, pictures):
            pictures += 1
            parts.append(f"![What the code above draws](../{picture.as_posix()})")
    title, *rest = parts
    heading, _, question = title.partition("\n")
    return "\n\n".join([heading, question.strip(), ORIGIN.format(name=name).strip(), *rest]) + "\n"


def main() -> None:
    """Write the pages of the notebooks that are named, or of all."""
    parser = argparse.ArgumentParser(
        description="Run the notebooks and write their pages.", allow_abbrev=False
    )
    known = sorted(path.stem for path in NOTEBOOKS.glob("*.py"))
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(known)}; by default all"
    )
    parser.add_argument(
        "--out", type=Path, default=DOCS, metavar="DIR", help="in the place of docs"
    )
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in known]:
        raise SystemExit(
            f"notebook_pages.py: there is no notebook {', '.join(unknown)}; there are"
            f" {', '.join(known)}."
        )
    # A figure is a part of the page, not a window.
    plt.show = lambda *_, **__: None
    for name in options.names or known:
        folder = options.out / "notebooks"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.md").write_text(page(name, options.out), encoding="utf-8")


if __name__ == "__main__":
    main()
