"""Thumbnails of figures, for pages that show many."""

import io
import os
from pathlib import Path

from PIL import Image, ImageFilter

from specjax import resume
from specjax.report.result_store import FIGURE, THUMBNAIL, require_intact

_SIZE = (288, 192)
"""Largest size in pixels: twice that on the page, for screens of high resolution."""


def ensure(folder: Path) -> None:
    """Make the thumbnail of a result folder if it is missing; a new result has a new folder without
    one.
    """
    made = folder / THUMBNAIL
    if made.exists():
        return
    require_intact(folder / FIGURE)
    with Image.open(folder / FIGURE) as figure:
        small = figure.convert("RGB")
    # Lines are drawn thicker on the way, or nothing would be left of them.
    small.thumbnail((4 * _SIZE[0], 4 * _SIZE[1]), Image.Resampling.BOX)
    small = small.filter(ImageFilter.MinFilter(3))
    small.thumbnail(_SIZE, Image.Resampling.LANCZOS)
    content = io.BytesIO()
    small.save(content, format="webp", quality=60)
    resume.write_atomically(made, content.getvalue(), f".{THUMBNAIL}.{os.getpid()}")
