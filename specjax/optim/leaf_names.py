"""The names of leaves as users write them."""

import jax
from jax.tree_util import DictKey, FlattenedIndexKey, GetAttrKey, SequenceKey
from jaxtyping import PyTree


def leaf_names(tree: PyTree) -> list[str]:
    """The dotted path of every leaf, such as `blocks.0.attention.query`, without the `.value` of
    flax variables.
    """
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(tree)]
    boxed = {
        path for path, x in jax.tree_util.tree_leaves_with_path(tree, is_leaf=is_box) if is_box(x)
    }
    return [
        leaf_name(next((path[:n] for n in range(len(path)) if path[:n] in boxed), path))
        for path in paths
    ]


def leaf_name(path: tuple[object, ...]) -> str:
    """The name for a path of `jax.tree_util`."""
    return ".".join(_key(key) for key in path) or "the only leaf"


def _key(key: object) -> str:
    if isinstance(key, DictKey | FlattenedIndexKey):
        return str(key.key)
    if isinstance(key, SequenceKey):
        return str(key.idx)
    if isinstance(key, GetAttrKey):
        return key.name
    return str(key).strip(".[]'")


def is_box(x: object) -> bool:
    """Whether x is a flax variable or flax metadata around an array; optimizers see leaves with and
    without this box.
    """
    kind = type(x)
    is_of_flax = any(base.__module__.partition(".")[0] == "flax" for base in kind.__mro__)
    # Look at the class, since flax warns when the value of a variable is read.
    return is_of_flax and (
        hasattr(kind, "value") or "value" in getattr(kind, "__dataclass_fields__", ())
    )
