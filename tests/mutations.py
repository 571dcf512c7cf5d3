"""What befalls folders of results: each mutation changes one, of which the parent holds a folder
`outside` that is nobody's to touch.
"""

import os
import shutil

import pytest

HOSTILE = (
    "javascript:alert(1)",
    "[0-9]*",
    "bucket[0]",
    "..x",
    "-rf",
    "a b\nc",
    "&<b>",
    ".DS_Store",
    "7",
    "con",
    "é" * 60,
)


def outside(parent):
    """A folder beside the one that is mutated, with a file to which links lead."""
    folder = parent / "outside"
    folder.mkdir(exist_ok=True)
    (folder / "mine").write_bytes(b"mine")
    return folder


def snapshot(parent, but):
    """All that is in a folder, except for one folder in it."""
    found = {}
    for path in sorted(parent.rglob("*")):
        if path != but and but not in path.parents:
            linked, file = path.is_symlink(), path.is_file()
            found[path] = os.readlink(path) if linked else path.read_bytes() if file else "folder"
    return found


def files(folder):
    """The files within a folder, in order."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def truncate(folder, chance):
    file = chance.choice([file for file in files(folder) if file.stat().st_size])
    os.truncate(file, chance.randrange(file.stat().st_size))


def flip(folder, chance):
    file = chance.choice([file for file in files(folder) if file.stat().st_size])
    content = bytearray(file.read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    file.write_bytes(content)


def delete(folder, chance):
    chance.choice(files(folder)).unlink()


def swap(folder, chance):
    one, other = chance.sample(files(folder), 2)
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)


def rename(folder, chance):
    """To the name of another file, but for the end: what tells the two apart may lie there."""
    one, other = chance.sample(files(folder), 2)
    one.rename(one.with_name(other.name[: len(other.name) // 2] + one.name[len(other.name) // 2 :]))


def empty(folder, chance):
    chance.choice(files(folder)).write_bytes(b"")


def number(folder, chance):
    """Where JSON is read, JSON of another kind."""
    jsons = [file for file in files(folder) if file.read_bytes()[:1] in (b"{", b"[")] or files(
        folder
    )
    chance.choice(jsons).write_text(
        chance.choice(["1", "null", "[]", "{}", '"a"', "[" * 100_000, "NaN"])
    )


def foreign(folder, chance):
    (folder / chance.choice(HOSTILE)).write_text("{}")


def foreign_folder(folder, chance):
    (folder / chance.choice(HOSTILE)).mkdir()


def in_a_file_s_place(folder, chance):
    """A folder where a file was."""
    file = chance.choice(files(folder))
    file.unlink()
    file.mkdir()


def link(folder, chance):
    """A file is a link to its content elsewhere."""
    file, away = chance.choice(files(folder)), outside(folder.parent)
    shutil.move(file, away / "moved")
    file.symlink_to(away / "moved")


def dangling(folder, chance):
    """A file is a link to where nothing is yet."""
    file = chance.choice(files(folder))
    file.unlink()
    file.symlink_to(outside(folder.parent) / "nothing")


def linked_draft(folder, chance):
    """What looks like an unfinished file is a link to a file elsewhere, or to where nothing is
    yet.
    """
    (folder / ".partial").symlink_to(outside(folder.parent) / chance.choice(["mine", "nothing"]))


MUTATIONS = {
    made.__name__: made
    for made in (
        truncate,
        flip,
        delete,
        swap,
        rename,
        empty,
        number,
        foreign,
        foreign_folder,
        in_a_file_s_place,
    )
} | {made.__name__: made for made in (link, dangling, linked_draft)}


def sentence(error):
    """Whether an error or a warning is one sentence."""
    told = str(error)
    assert "\n" not in told.replace("a b\nc", ""), told
    assert told.endswith("."), told
    return told


mutated = pytest.mark.parametrize("mutation", MUTATIONS)
