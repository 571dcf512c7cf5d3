import dataclasses
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from specjax import experiments
from specjax.report import _html, _markdown, _thumbnails, ledger_status, refresh, require_room
from specjax.report.result_store import save

VOID = {"meta", "img", "br", "link", "input"}
HOSTILE = "<script>alert('x')</script> & \"a|b\" *c* `d` [e](f)\nunheard-of"
EQ_40 = ("relu-off-diagonal", "table-c7", "figure-2")
"""The experiments with statements on the row eq-40."""


class Page(HTMLParser):
    """The elements of a page with their attributes, text and ancestors; demands that every tag is
    closed in order.
    """

    def __init__(self, text):
        super().__init__()
        self.open, self.elements = [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        element = {"tag": tag, "words": [], "within": tuple(self.open), **dict(attrs)}
        self.elements.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag):
        assert self.open.pop()["tag"] == tag

    def handle_data(self, data):
        if self.open and self.open[-1]["tag"] not in ("style", "script"):
            for element in self.open:
                element["words"].append(data)

    def all(self, tag=None, kind=None):
        """Elements by tag and class, in the order of the page."""
        return [
            element
            for element in self.elements
            if tag in (None, element["tag"])
            and (kind is None or kind in element.get("class", "").split())
        ]

    def within(self, ancestor, tag=None, kind=None):
        return [
            each
            for each in self.all(tag, kind)
            if any(above is ancestor for above in each["within"])
        ]

    def id(self, id):
        (element,) = [element for element in self.elements if element.get("id") == id]
        return element


def words(element):
    return " ".join(" ".join(element["words"]).split())


def page(*results):
    return Page(_html.render(results))


def kept(folder, results, data, figure):
    """The report of results in a folder, as a run leaves it."""
    for result in results:
        save(folder, result, data, figure)
    refresh(folder)
    return Page((folder / "report.html").read_text())


@pytest.fixture
def hostile(result, judged):
    def spoilt(each):
        record = dataclasses.replace(
            each.record, title=HOSTILE, summary=HOSTILE, source=HOSTILE, config={"text": HOSTILE}
        )
        return dataclasses.replace(
            each,
            record=record,
            checks=tuple(
                dataclasses.replace(check, says=HOSTILE, rule=HOSTILE) for check in each.checks
            ),
        )

    tables = (
        dataclasses.replace(result.tables[0], title=HOSTILE, header=(HOSTILE,), rows=((HOSTILE,),)),
    )
    toy = dataclasses.replace(spoilt(result), tables=tables)
    toy = dataclasses.replace(toy, record=dataclasses.replace(toy.record, paper=HOSTILE))
    attack = {"kind": HOSTILE, "name": HOSTILE, "verdict": HOSTILE, "survived": False}
    record = {
        "power": HOSTILE,
        "rule": HOSTILE,
        "reason": HOSTILE,
        "post_hoc": HOSTILE,
        "attacks": (attack,),
    }
    return [toy, spoilt(judged("relu-off-diagonal", off_diagonal=record))]


def eq_40(judged, **changes):
    """The page and the row eq-40 of it, with changes to the records of relu-off-diagonal."""
    shown = page(*(judged(name, **(changes if name == EQ_40[0] else {})) for name in EQ_40))
    return shown, shown.id("row-outer-product-eq-40")


@pytest.mark.integration
@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({}, "holds"),
        ({"remainder": {"verdict": "refuted"}}, "corrected"),
        (
            {"remainder": {"verdict": "refuted"}, "off_diagonal": {"verdict": "inconclusive"}},
            "false",
        ),
        ({"remainder": {"verdict": "inconclusive", "depends": True}}, "depends"),
        ({"remainder": {"verdict": "inconclusive"}}, "open"),
    ],
)
def test_a_row_has_the_status_that_its_statements_make(judged, changes, status):
    shown, row = eq_40(judged, **changes)
    assert row["data-status"] == status
    chip, *_ = shown.within(row, kind="chip")
    assert words(chip) == status
    (option,) = [each for each in shown.all("option") if words(each) == status]
    assert option["within"][-1]["name"] == "status"
    (link,) = [
        each
        for each in shown.all("a")
        if each.get("data-status") == status and status in words(each)
    ]
    assert link["within"][-1]["within"][-1]["class"] == "counts"


def test_a_row_shows_the_statement_with_the_nearest_rival(judged):
    near = {
        "power": "5 SE from the near one",
        "rivals": ({"name": "near", "standard_errors": 5.0, "excluded": True},),
    }
    # The row is corrected: its status hangs by the corrections, of which there are three, not by
    # what they replace.
    refuted = {"verdict": "refuted", "power": "4 SE from the prediction", "away": 4.0}
    shown, row = eq_40(judged, remainder=refuted, off_diagonal=near)
    (line,) = shown.within(row, "summary")
    assert words(line).startswith(
        "corrected Eq. 40 Theorem 3; Appendix C.3, eq. 40 True as printed"
    )
    (decided,) = shown.within(line, kind="decided")
    assert words(decided) == "1.98, predicted 2 off-diagonal: 5 SE from the near one"
    (image,) = shown.within(line, "img")
    assert (image["src"], image["loading"]) == ("relu-off-diagonal/thumbnail.webp", "lazy")


def test_a_row_unfolds_to_statements_rules_rivals_and_controls(judged):
    shown, row = eq_40(judged, remainder={"reason": "As it should be.", "post_hoc": "Seen before."})
    unfolded = shown.within(row, "article")
    assert len(unfolded) == 4
    for each in unfolded:
        for phrase in (
            "[1.9, 2.1]",
            "1000",
            "inside 4 standard errors",
            "9 SE",
            "noise in its place refuted",
        ):
            assert phrase in words(each)
    assert (
        sum(
            "As it should be." in words(each) and "Seen before." in words(each) for each in unfolded
        )
        == 1
    )


def test_a_row_whose_experiment_was_not_run_says_which(judged):
    shown = page(judged("relu-off-diagonal"), judged("table-c7"))
    row = shown.id("row-outer-product-eq-40")
    assert row["data-status"] == "not run"
    assert "specjax run figure-2" in words(row)


def test_a_row_decided_by_a_result_elsewhere_has_no_figure(judged, monkeypatch):
    rows, elsewhere = ledger_status.rows, [judged("table-c7", scale="paper"), judged("figure-2")]
    monkeypatch.setattr(
        ledger_status, "rows", lambda paper, results: rows(paper, [*results, *elsewhere])
    )
    # The correction of another run is the nearest, so it decides.
    shown = page(
        judged("relu-off-diagonal", remainder={"verdict": "refuted"}, off_diagonal={"rivals": ()})
    )
    row = shown.id("row-outer-product-eq-40")
    assert row["data-status"] == "corrected"
    assert "off-diagonal table-c7, scale paper" in words(row).replace(" (corrected)", "")
    assert shown.within(row, "img") == []
    assert {link["href"] for link in shown.within(row, "a")} == {"#run-relu-off-diagonal"}


def test_only_rows_that_need_no_judging_are_folded_away(judged):
    ledger = experiments.load("relu-off-diagonal").ledger
    shown = page(judged("relu-off-diagonal"))
    (fold,) = shown.all("details", "fold")
    folded = shown.within(fold, "li", "row")
    rows = shown.all("li", "row")
    assert [row["data-status"] for row in folded] == ["not judged"] * len(folded)
    assert [row for row in rows if row["data-status"] == "not judged"] == folded
    assert words(shown.within(fold, "summary")[0]).startswith(f"{len(folded)} more rows")
    assert {row["id"] for row in rows} == {f"row-outer-product-{id}" for id in ledger.rows}


def test_the_page_opens_with_a_card_counting_each_papers_rows(judged, result):
    shown = page(judged("relu-off-diagonal"), judged("claims-polar"), result)
    cards = shown.all("li", "card")
    assert [words(shown.within(card, "a", "title")[0]) for card in cards] == [
        "outer-product",
        "claims",
        "toy",
    ]
    first = shown.all("section", "paper")[0]
    assert shown.elements.index(cards[-1]) < shown.elements.index(first)
    for card, paper in zip(cards, shown.all("section", "paper"), strict=True):
        links = [link for link in shown.within(card, "a") if link.get("data-status")]
        found = [row["data-status"] for row in shown.within(paper, "li", "row")]
        assert {link["data-status"]: int(words(link).split()[0]) for link in links} == {
            status: found.count(status) for status in found
        }


def test_headlines_open_the_page_with_their_numbers(judged, result):
    refuted = {"relu_output_draw_vanishes": {"verdict": "refuted"}}
    shown = page(judged("relu-off-diagonal"), judged("dominance", **refuted), result)
    (opening,) = shown.all("ul", "headlines")
    assert shown.elements.index(opening) < shown.elements.index(shown.all("li", "card")[0])
    (headline,) = shown.within(opening, "li")
    (says,) = [
        statement.says
        for statement in experiments.load("dominance").statements
        if statement.name == "relu-output-draw-vanishes"
    ]
    assert words(headline).startswith(f"refuted outer-product {says}")
    assert "1.98" in words(headline)
    (link,) = shown.within(headline, "a")
    assert link["href"] == "#run-dominance"


def test_results_without_a_headline_open_with_the_papers(judged):
    shown = page(judged("relu-off-diagonal"))
    assert shown.all("ul", "headlines") == []
    assert words(shown.all("h2")[0]) == "outer-product"


def test_checks_that_decide_no_row_stand_under_their_experiment(judged, result):
    shown = page(judged("claims-polar"), judged("relu-off-diagonal", scale="smoke"), result)
    reported = {
        name: len(shown.within(shown.id(f"run-{name}"), "article"))
        for name in ("relu-off-diagonal", "claims-polar", "toy-slope")
    }
    statements = experiments.load("relu-off-diagonal").statements
    assert reported == {"relu-off-diagonal": len(statements), "claims-polar": 0, "toy-slope": 2}
    cards = [words(card) for card in shown.all("li", "card")]
    assert ["beside the ledger" in card for card in cards] == [False, True, True]
    assert cards[2] == "toy 1 experiment; beside the ledger: 1 refuted, 1 confirmed"
    assert "decide nothing" in words(shown.id("run-relu-off-diagonal"))


def test_only_the_filter_is_hidden_without_a_script(judged):
    shown = page(judged("relu-off-diagonal"))
    assert [element["tag"] for element in shown.elements if "hidden" in element] == ["form"]
    assert [script for script in shown.all("script") if "src" in script] == []


def test_a_card_lists_every_row_by_the_papers_label(judged):
    shown = page(judged("relu-off-diagonal"))
    (card,) = shown.all("li", "card")
    (anchors,) = shown.within(card, "details", "anchors")
    links = {words(link): link["href"] for link in shown.within(anchors, "a")}
    assert links["Theorem 3"] == "#row-outer-product-theorem-3"
    assert len(links) == len(shown.all("li", "row"))
    assert [element["type"] for element in shown.all("input")] == ["search"]


@pytest.mark.parametrize(
    ("scale", "verdict", "wall"),
    [
        ("smoke", "inconclusive", False),
        ("quick", "inconclusive", False),
        ("paper", "inconclusive", True),
        ("smoke", "refuted", True),
        ("quick", "refuted", True),
    ],
)
def test_small_runs_may_leave_statements_undecided(scale, verdict, wall, judged):
    result = judged("relu-off-diagonal", scale=scale)
    checks = tuple(dataclasses.replace(check, verdict=verdict) for check in result.checks)
    result = dataclasses.replace(result, checks=checks)
    shown, text = page(result), _markdown.render([result])
    said = f"Undecided statements: {len(checks)} at the size {scale}"
    assert bool(shown.all("div", "surprise")) is wall
    assert (said in words(shown.all("header")[0])) is not wall
    assert (said in text) is not wall


@pytest.mark.integration
def test_every_link_has_a_target_and_none_leads_outside(tmp_path, judged, renamed, data, figure):
    shown = kept(
        tmp_path,
        [judged("relu-off-diagonal"), judged("claims-polar"), renamed("one")],
        data,
        figure,
    )
    ids = [element["id"] for element in shown.elements if "id" in element]
    assert len(ids) == len(set(ids))
    targets = [
        element[key] for element in shown.elements for key in ("href", "src") if key in element
    ]
    assert len(targets) > 50
    for target in targets:
        assert target[1:] in ids if target.startswith("#") else (tmp_path / target).is_file(), (
            target
        )
    source = (tmp_path / "report.html").read_text()
    assert re.findall(r"https?:|url\(|@import|srcset|fetch\(", source) == []


@pytest.mark.integration
def test_a_report_of_every_experiment_is_small(judged):
    results = [judged(name) for name in experiments.names()]
    # With thumbnails of 20 kB or less it is read at once: 3 MB for 80 experiments.
    assert len(_html.render(results).encode()) < 22_000 * len(results)


@pytest.mark.integration
def test_a_thumbnail_is_small_and_is_that_of_the_newest_figure(tmp_path, result, data):
    def drawn(color):
        figure = Figure(figsize=(6, 6.5))
        for place in range(1, 5):
            axes = figure.add_subplot(2, 2, place)
            axes.plot(np.random.default_rng(place).normal(size=(200, 3)), color=color)
        kept(tmp_path, [result], data, figure)
        with Image.open(folder / "thumbnail.webp") as image:
            return image.size, np.asarray(image.convert("RGB")).mean((0, 1))

    folder = tmp_path / "toy-slope"
    size, red = drawn("red")
    assert size == (177, 192)
    assert (folder / "thumbnail.webp").stat().st_size < 20_000
    _, blue = drawn("blue")
    assert red[0] > red[2] + 20
    assert blue[2] > blue[0] + 20
    assert len(list(folder.iterdir())) == 7
    require_room(tmp_path, ["toy-slope"])


def test_a_thumbnail_that_cannot_be_made_leaves_nothing_behind(tmp_path):
    (tmp_path / "figure.png").write_bytes(b"no picture")
    with pytest.raises(OSError, match="cannot identify image"):
        _thumbnails.ensure(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["figure.png"]


@pytest.mark.parametrize(
    "render", [lambda results: words(page(*results).all("html")[0]), _markdown.render]
)
def test_a_report_tells_of_a_result(renamed, render):
    text = render([renamed("one"), renamed("two")]).replace("\\", "")
    result = renamed("one")
    phrases = [result.record.title, result.record.source, "smoke", "0.98", "[0.9, 1.1]"]
    for phrase in phrases + [word for check in result.checks for word in (check.name, check.says)]:
        assert text.count(phrase) >= 2, phrase
    assert "Experiments: 2, on papers: 1, statements: 4 (2 refuted, 2 confirmed)." in text


def test_the_page_tells_rules_tables_and_settings_as_well(result):
    text = words(page(result).all("html")[0])
    for phrase in (
        result.record.summary,
        "Slopes",
        "0.97",
        "2, 4",
        "cpu",
        *(check.rule for check in result.checks),
    ):
        assert phrase in text


@pytest.mark.parametrize(
    "render", [lambda results: words(page(*results).all("html")[0]), _markdown.render]
)
def test_a_verdict_other_than_expected_comes_first(result, judged, render):
    others = [judged("relu-off-diagonal")]
    assert "expected" not in render([*others, result])
    holds, fails = result.checks
    text = render(
        [
            *others,
            dataclasses.replace(
                result, checks=(holds, dataclasses.replace(fails, expected="confirmed"))
            ),
        ]
    )
    assert "refuted (expected: confirmed)" in text
    assert (
        0
        < text.index("toy-slope/fails is refuted, expected confirmed")
        < text.index("Experiments: 2")
    )


def test_html_escapes_everything(hostile):
    shown = page(*hostile)
    (script,) = shown.all("script")
    assert "alert" not in "".join(script["words"])
    assert words(shown.all("html")[0]).count("<script>alert('x')</script>") >= 30
    assert "<script>a" not in _html.render(hostile)


def test_markdown_escapes_everything_and_keeps_its_tables(hostile):
    text = _markdown.render(hostile)
    assert "<script" not in text.replace("\\<", "")
    assert "](f)" not in text.replace("\\](", "")
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") - 1 for line in lines} == {4, 6}
    assert text.count("unheard-of") == text.count("<script\\>".replace("<", "\\<")) >= 8


def test_markdown_has_the_ledger_before_the_experiments(judged):
    text = _markdown.render([judged(name) for name in EQ_40])
    line = next(line for line in text.splitlines() if line.startswith("| Eq. 40 "))
    assert line.startswith(
        "| Eq. 40 | **holds** | remainder: 1.98, predicted 2; 9 SE from the printed term | True"
    )
    assert text.index(line) < text.index("| remainder |")
