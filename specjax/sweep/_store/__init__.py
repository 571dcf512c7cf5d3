"""The store of a sweep: a folder with one file for every finished block, which the same call
continues.

    PATH/sweep.json                            what is swept: configuration, programs, plan, axes
    PATH/bucket0-000000-000100-CHECKSUM.npz    samples 0 to 99 at all points of bucket 0

A file is written aside, flushed to the disk and renamed, so it is whole or absent: a block is
finished if its file exists. A file that is damaged later no longer has the checksum of its name,
and the same call computes its block again. The checksum covers the place of the block and its
sweep, so that a renamed block is not read as another one. A writer holds `PATH/lock`.
"""

from specjax.resume import StoreError as StoreError
from specjax.sweep._store.description import Description as Description
from specjax.sweep._store.description import read_description as read_description
from specjax.sweep._store.files import Block as Block
from specjax.sweep._store.files import DamagedBlocksWarning as DamagedBlocksWarning
from specjax.sweep._store.store import Store as Store
from specjax.sweep._store.store import open_store as open_store
