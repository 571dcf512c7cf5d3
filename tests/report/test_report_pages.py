import dataclasses
from base64 import b64decode
from html.parser import HTMLParser

import pytest

from specjax.report import html, markdown

VOID = {"meta", "img", "br", "link"}
HOSTILE = "<script>alert('x')</script> & \"a|b\" *c* `d` [e](f)\nnext"


class Page(HTMLParser):
    """Collects the text, the tags and the links of a page, and demands that every tag is closed in order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.words = [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.words.append(data)

    def all(self, tag, attribute):
        return [attrs[attribute] for name, attrs in self.tags if name == tag and attribute in attrs]

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


@pytest.fixture
def hostile(result):
    record = dataclasses.replace(
        result.record, paper=HOSTILE, title=HOSTILE, summary=HOSTILE, source=HOSTILE, config={"text": HOSTILE}
    )
    checks = tuple(
        dataclasses.replace(check, source=HOSTILE, statement=HOSTILE, rule=HOSTILE) for check in result.checks
    )
    tables = (dataclasses.replace(result.tables[0], title=HOSTILE, header=(HOSTILE,), rows=((HOSTILE,),)),)
    return dataclasses.replace(result, record=record, checks=checks, tables=tables)


def render_html(*results):
    return html.render(results, {result.record.name: b"png of " + result.record.name.encode() for result in results})


def test_html_needs_no_other_file_to_be_read(renamed):
    page = Page(render_html(renamed("one"), renamed("two")))
    assert [b64decode(source.removeprefix("data:image/png;base64,")) for source in page.all("img", "src")] == [
        b"png of one",
        b"png of two",
    ]
    assert {tag for tag, _ in page.tags} & {"script", "link", "iframe", "object"} == set()
    assert "width=device-width" in page.all("meta", "content")[0]


def test_html_links_stay_inside_the_results_folder(renamed):
    page = Page(render_html(renamed("one")))
    assert set(page.all("a", "href")) == {
        "#one",
        "#paper-1",
        *(f"one/{f}" for f in ("figure.png", "data.nc", "checks.json", "tables.json", "config.json")),
    }
    assert "one" in page.all("section", "id")


@pytest.mark.parametrize(
    "render", [lambda result: Page(render_html(result)).text, lambda result: markdown.render([result])]
)
def test_a_report_tells_all_of_a_result(result, render):
    text = render(result)
    words = [result.record.title, result.record.summary, result.record.source, "2, 4", "1.2", "smoke", "Slopes", "0.97"]
    words += [word for check in result.checks for word in (check.name, check.statement, check.rule, check.source)]
    for word in [*words, "0.98", "[0.9, 1.1]"]:
        assert word in text.replace("\\", "")


@pytest.mark.parametrize("render", [lambda results: Page(render_html(*results)).text, markdown.render])
def test_the_summary_names_refuted_statements_first(renamed, render):
    text = render([renamed("one"), renamed("two")])
    assert "2 refuted, 2 confirmed." in text
    assert "Experiments: 2, on papers: 1, statements: 4 (2 refuted, 2 confirmed)." in text.replace("\\", "")
    refuted, confirmed = "The sign is + for all n.", "The slope is one."
    summary = text[: text.index("A toy slope")]
    assert summary.count(refuted) == summary.count(confirmed) == 2
    assert summary.rindex(refuted) < summary.index(confirmed)


@pytest.mark.parametrize("render", [lambda results: Page(render_html(*results)).text, markdown.render])
def test_a_verdict_other_than_expected_is_marked(result, render):
    assert "expected" not in render([result])
    record = dataclasses.replace(result.record, refuted=())
    assert "refuted (expected: confirmed)" in render([dataclasses.replace(result, record=record)])


def test_html_folds_what_is_confirmed_and_no_more(renamed):
    page = render_html(renamed("one"))
    folded = page[page.index("<details>") : page.index("</details>")]
    assert page.count("<details>") == 2  # the other is how the experiment was run
    assert "The slope is one." in folded
    assert "The sign is + for all n." not in folded


def test_html_escapes_everything(hostile):
    page = Page(render_html(hostile))
    assert "script" not in {tag for tag, _ in page.tags}
    assert page.text.count("<script>alert('x')</script>") >= 12


def test_markdown_escapes_everything_and_keeps_its_tables(hostile):
    text = markdown.render([hostile])
    assert "<script" not in text.replace("\\<", "")
    assert "](f)" not in text.replace("\\](", "")
    for line in text.splitlines():
        if line.startswith("|"):
            cells = line.replace("\\|", "").count("|") - 1
            assert cells in (1, 2, 4, 5)
    assert text.count("next") == text.count("<script\\>".replace("<", "\\<"))
