"""A run of headlines alone: it computes what they read and no more, and its numbers are those of
the whole run.
"""

import dataclasses

import pytest

from specjax import experiments
from specjax.lab.check import Check

ALL = {name: experiments.load(name) for name in experiments.MODULES}
READ = [name for name, each in ALL.items() if each.headlines_read]
QUICK = "table-c7"


class Noted(dict):
    """Datasets that note which of them are read."""

    def __init__(self, data):
        super().__init__(data)
        self.read = set()

    def __getitem__(self, name):
        self.read.add(name)
        return super().__getitem__(name)


@pytest.mark.integration
@pytest.mark.parametrize(
    "name",
    [name if name == QUICK else pytest.param(name, marks=pytest.mark.slow) for name in READ],
)
def test_headlines_read_what_is_declared_and_no_more(name, smoke_data):
    whole, data = ALL[name], smoke_data(name)
    alone, config = whole.with_headlines_alone(), whole.at("smoke")
    noted = Noted(data)
    for statement in alone.statements:
        statement.relation(config, noted)
    assert noted.read == set(whole.headlines_read)
    # Their rivals and controls read no more either: there is nothing else to read.
    part = {each: data[each] for each in whole.headlines_read}
    found, every = (
        [Check.from_judgement(judged) for judged in of.judge(config, of_data)]
        for of, of_data in ((alone, part), (whole, data))
    )
    assert {check.name for check in found} == set(whole.headlines)
    assert found == [check for check in every if check.name in whole.headlines]


@pytest.mark.integration
@pytest.mark.parametrize("name", [QUICK, pytest.param("polar-rank", marks=pytest.mark.slow)])
def test_headlines_alone_have_the_data_of_the_whole_run(name, smoke_data):
    whole, data = ALL[name], smoke_data(name)
    found = whole.with_headlines_alone().run(whole.at("smoke"))
    assert set(found) == set(whole.headlines_read) < set(data)
    for part, dataset in found.items():
        # Equal bits: an interval or a verdict must not depend on what else is computed.
        assert dataset.equals(data[part])


@pytest.mark.parametrize("read", [["samples"], ["exact", "samples"]])
def test_headlines_cannot_read_what_is_not_measured(read):
    sentence = (
        r"The headlines of table-c7 read 'samples', which its `measure` does not name; there are"
        r" exact, sampled\."
    )
    with pytest.raises(ValueError, match=sentence):
        dataclasses.replace(ALL["table-c7"], headlines_read=read)
