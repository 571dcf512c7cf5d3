"""The headlines: which statements they are, and the table that `specjax reproduce` prints."""

import dataclasses

import pytest

from specjax import experiments
from specjax.report import abstract, records


@pytest.fixture(scope="module")
def recorded():
    """The records of the experiments that have a headline, in the order of the report."""
    found = records.load_all()
    return [found[name] for name, each in experiments.load_all().items() if each.headlines]


def test_every_paper_and_discovery_has_a_headline():
    every = [experiments.load(name) for name in experiments.MODULES]
    assert {each.paper for each in every if each.headlines} == {each.paper for each in every}


def test_every_headline_is_decided_as_expected(recorded):
    checks = [check for result in recorded for check in abstract.headlines(result)]
    assert len(checks) >= len(recorded)
    assert [check.name for check in checks if check.verdict != check.expected] == []


@pytest.mark.parametrize("name", ["no-such-statement", "paper-simulation"])
def test_a_headline_is_a_statement_with_an_expected_verdict(name):
    sentence = (
        rf"The headline '{name}' of table-c7 is not a statement with an expected verdict; there"
    )
    with pytest.raises(ValueError, match=sentence):
        dataclasses.replace(experiments.load("table-c7"), headlines=[name])


@pytest.mark.parametrize("width", [80, 100, 120])
def test_the_table_fits_the_terminal(recorded, width):
    text = abstract.render(recorded, width)
    assert width - 20 < max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize(("width", "taken"), [(20, 80), (500, 120)])
def test_the_table_is_never_too_narrow_to_read(recorded, width, taken):
    assert abstract.render(recorded, width) == abstract.render(recorded, taken)


def test_each_headline_has_its_row_under_its_paper(recorded):
    text = abstract.render(recorded, 120)
    words = " ".join(text.split())
    titles = [line for line in text.splitlines() if line and not line.startswith(" ")]
    assert titles == list(dict.fromkeys(result.record.paper for result in recorded))
    for result in recorded:
        for check in abstract.headlines(result):
            assert all(word in words for word in check.says.split()[:3])
            assert check.verdict in words


def test_no_headline_is_no_table():
    assert abstract.render([], 80) == ""
