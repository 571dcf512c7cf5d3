"""The gallery of the site: a small picture of every experiment's figure in docs/images/gallery, and
docs/gallery.md, which shows them.

specjax reproduce --all
python scripts/maintain/gallery.py results

A picture holds the command that drew it, which stands below it on the page. So results of some
experiments, at a larger scale say, may replace theirs alone.
"""

import argparse
from pathlib import Path
from typing import BinaryIO

import numpy as np
from PIL import Image, PngImagePlugin

from specjax import experiments
from specjax.report import load_all, records

DOCS = Path(__file__).parents[2] / "docs"
PICTURES = DOCS / "images" / "gallery"
WIDTH, COLORS = 1400, 256
"""Pixels across at most, so that legends can be read, and colours: some 45 kB a picture."""
COMMAND = "Command"
"""The text in a picture's file that says how to draw it."""
SECTIONS = {
    "outer-product": ("The outer-product paper", "papers/outer-product.md"),
    "claims": ("The fourteen claims", "papers/claims.md"),
    "preconditioning": ("The preconditioning paper", "papers/preconditioning.md"),
    "spectral-criterion": ("The spectral-criterion paper", "papers/spectral-criterion.md"),
    "associative-memory": ("The associative-memory paper", "papers/associative-memory.md"),
    "scaling": ("Widths and rates", "papers/scaling.md"),
    "field": ("Recent papers", "papers/field.md"),
}
"""Title and page of each paper; what is under none of them is ours."""
OURS = "Beyond the papers"
HEAD = """# Gallery

The figure of every experiment, with its finding and its command. Statements without a curve share a
panel, as lines with a black bar at the limit; the report folds a panel for each statement.
"""
ENTRY = """
<figure markdown>
[![{name}](images/gallery/{name}.png){{loading=lazy}}](images/gallery/{name}.png)
<figcaption markdown>{sentence} `{command}`</figcaption>
</figure>
"""


def shrunk(figure: Path | BinaryIO) -> Image.Image:
    """A figure's picture in few colours, at most `WIDTH` pixels across."""
    with Image.open(figure) as whole:
        small = whole.convert("RGB")
    small.thumbnail((WIDTH, small.height), Image.Resampling.LANCZOS)
    # By an octree translucent bands that overlap keep their colours; the colours that are farthest
    # apart made them pink and grey.
    small = small.quantize(COLORS, method=Image.Quantize.FASTOCTREE)
    # It mixes white with the lightest greys: the ground, the colour of a corner, is white again.
    palette, ground = small.getpalette() or [], 3 * np.asarray(small)[0, 0]
    palette[ground : ground + 3] = [255, 255, 255]
    small.putpalette(palette)
    return small


def command(name: str) -> str:
    """The command that drew an experiment's picture in the gallery."""
    with Image.open(PICTURES / f"{name}.png") as picture:
        return str(picture.info[COMMAND])


def page() -> str:
    """The text of the gallery, a section for each paper, in the order of the papers and then of the
    experiments.
    """
    sections: dict[str, list[str]] = {heading: [] for heading in [*SECTIONS, OURS]}
    for name in experiments.names():
        experiment = experiments.load(name)
        where = experiment.paper if experiment.paper in SECTIONS else OURS
        title = experiment.title.rstrip(".")
        sentence = title if title.endswith("?") else f"{title}."
        # The scale quick is the default.
        how = command(name).removesuffix(" --scale quick")
        sections[where].append(ENTRY.format(name=name, sentence=sentence, command=how))
    parts = [HEAD]
    for key, entries in sections.items():
        title, link = SECTIONS.get(key, (OURS, None))
        parts.append(
            f'\n## {f"[{title}]({link})" if link else title}\n\n<div class="gallery"'
            f" markdown>\n{''.join(entries)}\n</div>\n"
        )
    return "".join(parts)


def main() -> None:
    """Exit code 1 if an experiment has neither a result in the folder nor a picture."""
    parser = argparse.ArgumentParser(
        description="Make the gallery of the site from stored results."
    )
    parser.add_argument(
        "results", type=Path, metavar="DIR", help="results of `specjax reproduce` or `specjax run`"
    )
    folder = parser.parse_args().results
    try:
        found = {
            result.record.name: records.content(result)["command"] for result in load_all(folder)
        }
    except ValueError as error:
        raise SystemExit(f"gallery.py: {error}") from error
    names = experiments.names()
    if lacking := [
        name for name in names if name not in found and not (PICTURES / f"{name}.png").exists()
    ]:
        raise SystemExit(
            f"gallery.py: {folder} has no result of {', '.join(lacking)}; run `specjax reproduce"
            f" --all --out {folder}`."
        )
    PICTURES.mkdir(parents=True, exist_ok=True)
    for old in PICTURES.glob("*.png"):
        if old.stem not in names:
            old.unlink()
    for name, how in found.items():
        info = PngImagePlugin.PngInfo()
        info.add_text(COMMAND, how)
        shrunk(folder / name / "figure.png").save(
            PICTURES / f"{name}.png", optimize=True, pnginfo=info
        )
    (DOCS / "gallery.md").write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
