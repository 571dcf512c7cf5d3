"""A hook of the documentation's builder: the API page of a package shows what its `__init__` exports, and nothing else.

A line `::: specjax.sweep` in docs/api stands for one entry for each name that specjax/sweep/__init__.py imports `as` itself, in its
order. Lines that name a module are left as they are.
"""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def on_page_markdown(markdown: str, **_: object) -> str:
    return re.sub(
        r"^::: (specjax[\w.]*)$",
        lambda line: "\n".join(f"::: {name}\n" for name in public(line[1])),
        markdown,
        flags=re.MULTILINE,
    )


def public(path: str) -> list[str]:
    """Where the names that a package exports are defined; of what is no package, or exports nothing, the path itself."""
    start = ROOT.joinpath(*path.split("."), "__init__.py")
    if not start.exists():
        return [path]
    imports = [node for node in ast.parse(start.read_text(encoding="utf-8")).body if isinstance(node, ast.ImportFrom)]
    # What a package imports from itself are its modules.
    return [
        f"{node.module}.{name.name}" for node in imports if node.module != path for name in node.names if name.asname
    ] or [path]
