"""Hooks of the documentation's builder.

The API page of a package shows what its `__init__` exports, and nothing else: a line `:::
specjax.sweep` in docs/api stands for the docstring of the package and an entry for each module from
which specjax/sweep/__init__.py imports names `as` themselves, with these names alone. The
docstrings of modules are shown since they have the formulas of which those of functions speak.
Lines that name a module are left as they are. A line `::: CHANGELOG.md` stands for that file, and a
comment `<!-- rows of field -->` for the rows of docs/papers/ledgers/field.tsv.

Formulas in plain text are set: what stands below or above in u_i, ‖G‖_* and d^(1/α). Other
underscores keep their sign, and make no emphasis.

A name in code, such as `specjax.sweep.run`, is a link to its entry, if it has one. A picture is a
link to itself: alone it can be enlarged.
"""

import ast
import json
import re
from functools import cache
from pathlib import Path
from xml.etree.ElementTree import Element, SubElement

from markdown import Extension, Markdown
from markdown.inlinepatterns import InlineProcessor, SimpleTextInlineProcessor
from markdown.util import AtomicString
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority

ROOT = Path(__file__).parents[2]


class NameInCode(InlineProcessor):
    """Makes of a name what the plugin that links names reads."""

    def handleMatch(self, m: re.Match[str], data: str) -> tuple[Element, int, int]:  # noqa: ARG002
        """A name without entry stays as it is."""
        path, _, name = m[1].rpartition(".")
        link = Element("autoref", identifier=f"{defining(path, name)}.{name}", optional="")
        code = SubElement(link, "code")
        code.text = AtomicString(m[1])
        return link, m.start(0), m.end(0)


LETTER = "A-Za-zα-ωΑ-Ωℓ"
BELOW = (
    # One sign below anything, as in max_i; or a word below one letter or a bracket, as in W_out,
    # but not in fan_in.
    rf"(?<=[^\s_(])UNDER(?P<sign>\\?\*|(?:[{LETTER}0-9#∞]|[+-](?![\w(]))(?![A-Za-z0-9]|\\?_))"
    rf"|(?<![A-Za-z][A-Za-z])(?<=[^\s_(])UNDER(?P<word>[{LETTER}0-9]{{2,5}})(?![A-Za-z0-9]|\\?_)"
    r"|(?<=\S)UNDER(?:\{(?P<below>[^{}]*)\}|(?P<index>\([^()]*\)))"
)
ABOVE = (
    r"(?<=\S)\^(?:\{(?P<above>(?:[^{}]|\{[^{}]*\})*)\}|(?P<power>\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"
    rf"|-?\d+/\d+|-?[⊙∘]?\d+(?:\.\d+)?|-?[{LETTER}]+|∞))"
)
ESCAPED = BELOW.replace("UNDER", r"\\_")
PLAIN = BELOW.replace("UNDER", "_") + "|" + ABOVE
EITHER = re.compile(BELOW.replace("UNDER", r"\\?_") + "|" + ABOVE)


class Scripts(InlineProcessor):
    """Signs below and above the line, in formulas of plain text."""

    def handleMatch(self, m: re.Match[str], data: str) -> tuple[Element, int, int]:  # noqa: ARG002
        """A formula below or above is set likewise."""
        return script(m), m.start(0), m.end(0)


def script(m: re.Match[str]) -> Element:
    element = Element("sup" if m.lastgroup in ("above", "power") else "sub")
    text = m[m.lastgroup or 0]
    inner = list(EITHER.finditer(text))
    ends = [0, *(found.end() for found in inner)]
    starts = [*(found.start() for found in inner), len(text)]
    element.text, *tails = (text[end:start] for end, start in zip(ends, starts, strict=True))
    for found, tail in zip(inner, tails, strict=True):
        child = script(found)
        child.tail = tail
        element.append(child)
    return element


class PlainText(Extension):
    """Text between underscores, as in ‖A‖_F ‖B‖_F, is no emphasis; pages write emphasis with stars.

    >>> def paragraph(text):
    ...     print(Markdown(extensions=[PlainText()]).convert(text))
    >>> paragraph("‖A‖_F and ‖G‖_* of W_out, not fan_in or x_test_set")
    <p>‖A‖<sub>F</sub> and ‖G‖<sub>*</sub> of W<sub>out</sub>, not fan_in or x_test_set</p>
    >>> paragraph("max_i s_i^2 at d^(1+1/(2α))")
    <p>max<sub>i</sub> s<sub>i</sub><sup>2</sup> at d<sup>(1+1/(2α))</sup></p>
    >>> paragraph("`u_i^2`")
    <p><code>u_i^2</code></p>
    """

    def extendMarkdown(self, md: Markdown) -> None:
        """Change the patterns of `md`, which calls this."""
        # Before what is escaped, of priority 180; tables have escaped underscores.
        md.inlinePatterns.register(Scripts(ESCAPED), "escaped_scripts", 185)
        # Before emphasis, of priority 60, and after code, links and HTML.
        md.inlinePatterns.register(Scripts(PLAIN), "scripts", 66)
        md.inlinePatterns.register(SimpleTextInlineProcessor(r"(_\*?)"), "plain_underscore", 65)
        # Before code, of priority 190, and not in the text of a link.
        md.inlinePatterns.register(
            NameInCode(r"(?<![`\[])`(specjax(?:\.\w+)+)`(?!`)"), "name_in_code", 195
        )


# Before the plugin that reads docstrings takes the list.
@event_priority(100)
def on_config(config: MkDocsConfig) -> MkDocsConfig:
    config.markdown_extensions.append(PlainText())
    return config


def on_page_markdown(markdown: str, **_: object) -> str:
    markdown = re.sub(
        r"^::: (specjax[\w.]*)$", lambda line: entries(line[1]), markdown, flags=re.MULTILINE
    )
    markdown = re.sub(
        r"^<!-- rows of ([a-z-]+) -->$", lambda line: rows(line[1]), markdown, flags=re.MULTILINE
    )
    return re.sub(
        r"^::: ([A-Z]+\.md)$", lambda line: at_root(line[1]), markdown, flags=re.MULTILINE
    )


def rows(paper: str) -> str:
    """The rows of a ledger's file as a table to be unfolded; on a phone docs/assets/specjax.css
    shows each as a list.
    """
    file = ROOT / "docs/papers/ledgers" / f"{paper}.tsv"
    header, *lines = (line.split("\t") for line in file.read_text("utf-8").splitlines())
    place = header.index("where")
    cells = [header, ["---"] * len(header), *lines]
    shown = (row[:place] + row[place + 1 :] for row in cells)
    table = "\n".join(
        "|" + "|".join(re.sub(r"([*_|])", r"\\\1", cell) for cell in row) + "|" for row in shown
    )
    return (
        f'<details class="standing" markdown>\n<summary>{len(lines)} rows</summary>\n\n{table}\n'
        "</details>"
    )


def at_root(name: str) -> str:
    """The text of a file beside docs, with its links as a page at the top of docs has them."""
    text = (ROOT / name).read_text(encoding="utf-8")
    return text.replace("](docs/", "](").replace("](CHANGELOG.md)", "](changelog.md)")


def on_page_content(html: str, **_: object) -> str:
    return re.sub(
        r'(<a [^>]*>)?<img [^>]*?src="([^"]+)"[^>]*>',
        lambda picture: picture[0] if picture[1] else f'<a href="{picture[2]}">{picture[0]}</a>',
        html,
    )


def entries(path: str) -> str:
    """The entries of a package's modules, below what the package says of itself; of what is no
    package, or exports nothing, its own.
    """
    modules = public(path)
    if not modules:
        return f"::: {path}"
    # A name of another package that has a page has its entry there.
    modules = {
        module: names
        for module, names in modules.items()
        if module.startswith(path)
        or not (ROOT / "docs/api" / f"{module.split('.')[1]}.md").exists()
    }
    about = entry(path, members=False, show_root_heading=False, show_root_toc_entry=False)
    how = f"Import what follows from `{path}`.\n"
    return "\n".join([about, how, *map(part, modules, modules.values())])


def part(module: str, names: list[str]) -> str:
    """The entry of a module under its subject, since readers import from the package."""
    subject = module.rpartition(".")[2].removeprefix("_").replace("_", " ")
    return entry(module, members=names, heading=subject, toc_label=subject)


def entry(path: str, **options: bool | str | list[str]) -> str:
    return f"::: {path}\n    options: {json.dumps(options)}\n"


@cache
def public(path: str) -> dict[str, list[str]]:
    """The names that a package exports, under the modules that define them."""
    start = ROOT.joinpath(*path.split("."), "__init__.py")
    modules: dict[str, list[str]] = {}
    for node in ast.parse(start.read_text(encoding="utf-8")).body if start.exists() else ():
        # What a package imports from itself are its modules.
        if isinstance(node, ast.ImportFrom) and node.module and node.module != path:
            for name in node.names:
                if name.asname:
                    modules.setdefault(defining(node.module, name.name), []).append(name.name)
    return modules


def defining(path: str, name: str) -> str:
    """The module that defines a name of the module or package `path`."""
    return next((module for module, names in public(path).items() if name in names), path)
