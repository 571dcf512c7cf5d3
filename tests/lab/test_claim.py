"""Words beside a module: conjectures of our own in the place of a paper's rows."""

import pytest

from specjax import lab

OURS = """
[experiment]
title = "Twice is two"
summary = "A sum of two ones is two."

[conjectures]
sum-of-ones = "A sum of n ones is n."

[presets.paper]
seeds = 9

[statements.two]
cites = ["sum-of-ones"]
says = "Two ones are two."
"""


@pytest.fixture
def module(tmp_path):
    """The place of a module with words beside it, which need not exist to be read."""
    (tmp_path / "two_ones.toml").write_text(OURS)
    return tmp_path / "two_ones.py"


def test_a_module_has_its_conjectures_beside_it(module):
    claim = lab.read_claim(str(module))
    assert (claim.name, claim.ledger.paper, dict(claim.paper)) == ("two-ones", "two-ones", {})
    (row,) = claim.ledger.rows.values()
    assert (row.id, row.kind, row.says) == ("sum-of-ones", "conjecture", "A sum of n ones is n.")
    assert claim.presets == {"paper": {"seeds": 9}}


def test_statements_and_headlines_come_from_both_files(module):
    claim = lab.read_claim(str(module))

    @claim.judges("two", rivals={"three": 3.0})
    def two(config, data):
        return lab.near(data["sum"], 2.0, 0.1, "0.1")

    class Config(lab.Config):
        seeds: int = lab.config.seeds(5)

    options = {"headlines": ("two",), "headlines_read": ("sums",)}
    found = claim.experiment(Config, {"sums": lambda *_: None}, **options)
    assert (found.title, found.source) == ("Twice is two", "two-ones, sum-of-ones")
    assert found.at("paper").seeds == 9
    assert found.statements[0].says == "Two ones are two."
    assert [each.name for each in found.with_headlines_alone().statements] == ["two"]


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ("[conjectures]", '[paper]\ntitle = "x"\n[conjectures]', "unknown key 'paper'"),
        ('[conjectures]\nsum-of-ones = "A sum of n ones is n."', "", "lacks 'paper'"),
        ('"A sum of n ones is n."', "2", "table of sentences by name"),
    ],
)
def test_words_are_of_a_paper_or_of_ours(before, after, sentence, module):
    words = module.with_suffix(".toml")
    assert before in OURS
    words.write_text(OURS.replace(before, after))
    with pytest.raises(ValueError, match=sentence):
        lab.read_claim(str(module))


def test_a_statement_that_the_words_lack_names_the_file(module):
    with pytest.raises(ValueError, match=r"two_ones\.toml .* has no statement 'three'"):
        lab.read_claim(str(module)).judges("three", rivals={"two": 2.0})
