"""The zarr side of a store: the metadata of its arrays, and what a finished dataset has beside them.

zarr writes them into a folder aside, and from there their files are renamed into place. The chunks of the arrays are written
without zarr (see :mod:`specjax.sweep.store.chunks`), uncompressed.
"""

import hashlib
import shutil
import warnings
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from specjax.sweep.store.files import replace_files
from specjax.sweep.store.layout import Layout, fill_value


def install(data: Path, aside: Path, layout: Layout, dataset: xr.Dataset | None = None) -> dict[str, str]:
    """Write everything of the zarr group `data` but the chunks of the layout's variables, in place of what there was.

    Without a dataset these are bare arrays. With one they get its attributes, and the group its coordinates and other variables.

    Returns:
        The sha256 of every file written, by its path in `data`.
    """
    # A killed process may have left a draft there.
    shutil.rmtree(aside, ignore_errors=True)
    draft = aside / "draft.zarr"
    try:
        _build(draft, layout, dataset)
        files = {str(file.relative_to(draft)): file.read_bytes() for file in sorted(draft.rglob("*")) if file.is_file()}
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    if data.is_dir():
        for entry in data.iterdir():
            if entry.is_dir() and entry.name not in layout.variables:
                shutil.rmtree(entry)
    replace_files(aside, [(data / name, content) for name, content in files.items()])
    return {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}


def _build(folder: Path, layout: Layout, dataset: xr.Dataset | None) -> None:
    import zarr

    if dataset is not None:
        dataset.drop_vars(list(layout.variables)).to_zarr(folder, mode="w", zarr_format=3, consolidated=False)
    group = zarr.open_group(folder, mode="a", zarr_format=3)
    for name in layout.variables:
        dims, attributes = (layout.dims(name), {}) if dataset is None else (dataset[name].dims, dataset[name].attrs)
        group.create_array(
            name,
            shape=layout.shape(name),
            chunks=layout.chunk_shape(name),
            dtype=layout.dtype(name),
            fill_value=fill_value(layout.dtype(name)),
            # The chunks are written without zarr: uncompressed, all of a variable in one folder.
            compressors=None,
            filters=None,
            chunk_key_encoding={"name": "default", "separator": "."},
            dimension_names=[str(dim) for dim in dims],
            attributes=_json(attributes),
        )
    with warnings.catch_warnings():
        # Without it xarray warns that it has to look for the arrays; that other readers may pass over it does no harm.
        warnings.filterwarnings("ignore", "Consolidated metadata is currently not part")
        zarr.consolidate_metadata(str(folder), zarr_format=3)


def _json(attributes: Mapping[Hashable, Any]) -> dict[str, Any]:
    return {
        str(name): value.tolist() if isinstance(value, np.ndarray | np.generic) else value
        for name, value in attributes.items()
    }
