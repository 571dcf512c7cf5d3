"""The store of a sweep: a folder that its blocks are written to as they are computed, and from which the same call continues.

    PATH/manifest.json   the configuration, the plan and the layout
    PATH/blocks.jsonl    the journal: a line for every finished block, appended when its data are on the disk
    PATH/data.zarr       the data; `xarray.open_zarr` opens it

A process may be killed at any moment. A file is written aside and renamed, so it is the old one or the new one; a block counts
when its line is in the journal; and a dataset counts as finished when the manifest says so, which is the last thing written.
"""

from specjax.sweep.store.files import StoreError as StoreError
from specjax.sweep.store.layout import Block as Block
from specjax.sweep.store.layout import Layout as Layout
from specjax.sweep.store.manifest import Manifest as Manifest
from specjax.sweep.store.manifest import read_manifest as read_manifest
from specjax.sweep.store.store import Store as Store
from specjax.sweep.store.verification import Report as Report
from specjax.sweep.store.verification import verify as verify
