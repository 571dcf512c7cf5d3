"""`specjax check`, and claims as folders: what a complete one has, and what is said of others."""

import pytest

from specjax import experiments, lab
from specjax.cli import main
from specjax.cli._claim_check import TEMPLATE


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A copy of the template, forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(experiments, "MODULES", dict(experiments.MODULES))
    assert main(["check", "--template", "mine"]) == 0
    return tmp_path / "mine"


def edit(folder, file, before, after):
    text = (folder / file).read_text()
    assert before in text
    (folder / file).write_text(text.replace(before, after))


@pytest.mark.parametrize(
    "name", [path.parent.name for path in experiments.SUBMITTED.glob("*/*.toml")]
)
def test_submitted_claims_have_all_files_and_words(name, capsys):
    assert main(["check", str(experiments.SUBMITTED / name), "--no-run"]) == 0
    assert capsys.readouterr().out.endswith("complete\n")
    assert name.replace("_", "-") in experiments.names()


@pytest.mark.integration
@pytest.mark.usefixtures("folder")
def test_the_template_is_complete_and_decides(capsys):
    assert main(["check", "mine"]) == 0
    out = capsys.readouterr().out
    assert "ok       quick/gains-the-dual-norm is confirmed" in out
    assert "MISSING" not in out


@pytest.mark.integration
def test_a_folder_elsewhere_runs_like_any_experiment(folder, capsys):
    assert main(["run", "mine", "--scale", "smoke"]) == 0
    assert "ascent-gains-no-more" in capsys.readouterr().out
    assert (folder.parent / "results/mine/figure.png").exists()


@pytest.mark.parametrize(
    ("file", "before", "after", "sentence"),
    [
        ("claim.toml", "steps = 200", "stepz = 200", "changes 'stepz', which is not a field"),
        ("claim.toml", '["abstract-schatten"]', '["abstract"]', "cites 'abstract', which is not"),
        ("claim.toml", "[paper]", "[papers]", "has the unknown key 'papers'"),
        ("claim.toml", "link = ", "url = ", "has the unknown key 'url'"),
        ("claim.toml", 'kind = "claim"', 'kind = "guess"', "has the unknown kind 'guess'"),
        ("claim.toml", "[statements.gains-the-dual-norm]", "[statements.other]", "no statement"),
        ("claim.toml", "title = ", "title ", "is not TOML"),
        ("claim.py", '    "ascent-gains-no-more",', '    "gains",', "has no statement 'gains'"),
    ],
)
def test_a_mistake_in_a_claim_is_one_sentence(file, before, after, sentence, folder, capsys):
    capsys.readouterr()
    edit(folder, file, before, after)
    assert main(["check", "mine", "--no-run"]) == 2
    output = capsys.readouterr()
    assert sentence in output.err
    assert output.err.count("\n") == 1
    assert output.out == ""


def test_a_statement_without_a_function_is_refused(folder, capsys):
    edit(
        folder,
        "claim.py",
        '@claim.judges(\n    "ascent-gains-no-more",',
        '@lab.statement(\n    "x", "y",',
    )
    assert main(["check", "mine", "--no-run"]) == 2
    assert "'ascent-gains-no-more' of mine has no function" in capsys.readouterr().err


def test_what_is_missing_is_said_line_by_line(folder, capsys):
    edit(folder, "claim.toml", "because = ", "finding = ")
    edit(
        folder,
        "claim.py",
        '        "a power 0.1 smaller": lab.controls.replacing("power", "smaller power"),\n',
        "",
    )
    (folder / "claim.py").write_text((folder / "claim.py").read_text() + "\n" * 60)
    assert main(["check", "mine", "--no-run"]) == 1
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("MISSING")]
    assert [line.split()[1] for line in lines] == ["claim.py", "row", "row", "statement"]


@pytest.mark.integration
def test_a_verdict_other_than_expected_is_missing(folder, capsys):
    edit(folder, "claim.py", "gain_of_power(s, p, order)", "gain_of_power(s, p + 0.01, order)")
    assert main(["check", "mine"]) == 1
    assert (
        "MISSING  quick/gains-the-dual-norm is inconclusive, expected confirmed"
        in capsys.readouterr().out
    )


@pytest.mark.usefixtures("folder")
def test_a_taken_name_and_a_folder_that_exists_are_refused(capsys):
    assert main(["check", "--template", "mine"]) == 2
    assert "name a new folder" in capsys.readouterr().err
    assert main(["check", "--template", TEMPLATE]) == 0
    assert main(["check", TEMPLATE, "--no-run"]) == 2
    assert "give the folder another name" in capsys.readouterr().err


def test_fields_of_presets_must_exist():
    claim = lab.read_claim(str(experiments.SUBMITTED / TEMPLATE / "claim.py"))
    assert claim.presets["paper"]["powers"] == (0.1, 0.25, 0.5, 0.75, 0.9)
    with pytest.raises(ValueError, match="has no function"):
        claim.experiment(lab.Config, lambda *_: None)
