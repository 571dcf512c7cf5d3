"""Hooks of the documentation's builder.

The API page of a package shows what its `__init__` exports, and nothing else: a line `::: specjax.sweep` in docs/api stands for one
entry for each name that specjax/sweep/__init__.py imports `as` itself, in its order. Lines that name a module are left as they are.

Formulas in plain text keep their signs: an underscore makes no emphasis, and neither does the star of ‖G‖_*.
"""

import ast
import re
from pathlib import Path

from markdown import Extension, Markdown
from markdown.inlinepatterns import SimpleTextInlineProcessor
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority

ROOT = Path(__file__).parents[1]


class PlainFormulas(Extension):
    """Text between underscores, as in ‖A‖_F ‖B‖_F, is no emphasis, and `_*` is text; pages write emphasis with stars."""

    def extendMarkdown(self, md: Markdown) -> None:
        """Change the patterns of `md`, which calls this."""
        # Before emphasis, of priority 60, and after code, links and HTML.
        md.inlinePatterns.register(SimpleTextInlineProcessor(r"(_\*?)"), "plain_underscore", 65)


# Before the plugin that reads docstrings takes the list.
@event_priority(100)
def on_config(config: MkDocsConfig) -> MkDocsConfig:
    config.markdown_extensions.append(PlainFormulas())
    return config


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
