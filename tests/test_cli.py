"""The command line, on two small experiments of its own: what it prints, what it writes, and what
it refuses.
"""

import dataclasses
import json
import logging
import os
import re
import subprocess
import sys
import types
import warnings
from pathlib import Path

import jax
import numpy as np
import pytest
import xarray as xr
from matplotlib.figure import Figure

import specjax
from specjax import lab, report, sizes, sweep
from specjax.cli import main
from specjax.report import _peak_memory, records


class Config(lab.Config):
    widths: tuple[int, ...] = lab.config.sizes(2, 4, 8, help="")
    steps: tuple[float, ...] = lab.config.numbers(0.1, 0.2, help="")
    learning_rate: float = lab.config.number(0.1, help="100% of the step")
    nesterov: bool = lab.config.switch(False, help="")
    method: str = lab.config.text("svd", help="")

    def __post_init__(self):
        super().__post_init__()
        if self.method == "newton":
            raise ValueError(f"method must be another,\n  not {self.method}.")


def run(config, _):
    if config.learning_rate < 0:
        raise ValueError("learning_rate must be positive; try 0.1.")
    y = 1 + np.tile([-0.1, 0.1], (len(config.widths), 50))
    dims = ("width", "seed" if config.method == "svd" else "draw")
    return {"points": xr.Dataset({"y": (dims, y)}, {"width": list(config.widths)})}


def shifted(_, data):
    return {"points": data["points"] + 1}


@lab.statement("theorem-1", "The mean is one.", rivals={"two": 2.0})
def holds(_, data):
    return lab.equals(data["points"]["y"], 1.0)


@lab.statement(
    "theorem-1",
    "The mean is below ten.",
    controls={"twenty more": lambda _, data: {"points": data["points"] + 20}},
    holds=None,
)
def finite(_, data):
    return lab.below(data["points"]["y"], 10.0, "ten")


@lab.statement(
    "theorem-2", "Every point is above 3/2.", controls={"one more": shifted}, holds=False
)
def fails(_, data):
    return lab.above(data["points"]["y"], 1.5, "3/2")


@lab.statement("theorem-1", "What the data do not have is one.", rivals={"two": 2.0})
def of_what_is_not_there(_, data):
    return lab.equals(data["gone"]["y"], 1.0)


def plot(config, data):
    figure = Figure(figsize=(3, 2))
    figure.add_subplot().plot(config.widths, data["points"]["y"].mean("seed"))
    return figure


TOY = lab.Experiment(
    name="toy-slope",
    ledger=lab.ledger.Ledger.from_conjectures(
        "toy", theorem_1="The mean is one.", theorem_2="Every point is above 3/2."
    ),
    title="A toy slope",
    summary="A line through points.",
    config=Config,
    measure=run,
    statements=(holds, fails),
    scales={"smoke": {"widths": (2, 4), "steps": (0.5,)}, "paper": {"widths": (2, 1024)}},
    headlines=("fails",),
    figure=plot,
    tables=lambda config, _: [
        lab.Table("Points", ("width",), tuple((str(width),) for width in config.widths))
    ],
)
OTHER = dataclasses.replace(TOY, name="other-toy", title="Another toy")
FILES = "SHA256SUMS checks.json config.json data.nc figure.png tables.json thumbnail.webp"


@pytest.fixture(autouse=True)
def register(monkeypatch, tmp_path):
    """Make the given experiments the only ones; at first TOY and OTHER. The default results folder
    is under tmp_path.

    One at a time: other processes know nothing of them.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("specjax.report.runner.default_jobs", lambda: 1)
    monkeypatch.setattr("specjax.experiments.SUBMITTED", tmp_path / "submitted")

    def only(*toys):
        for toy in toys:
            module = types.ModuleType(f"toys_{toy.name}")
            module.EXPERIMENT = toy
            monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setattr(
            "specjax.experiments.MODULES", {toy.name: f"toys_{toy.name}" for toy in toys}
        )

    only(TOY, OTHER)
    return only


def interrupt(*_):
    raise KeyboardInterrupt


def names(folder):
    """The names in a folder, in order and separated by blanks."""
    return " ".join(sorted(path.name for path in Path(folder).iterdir()))


def stored(name, out="results"):
    return {
        file: json.loads((Path(out) / name / f"{file}.json").read_text())
        for file in ("config", "checks", "tables")
    }


def test_a_field_named_as_a_flag_is_refused():
    class Taken(lab.Config):
        scale: float = lab.config.number(1.0, help="")

    with pytest.raises(
        ValueError,
        match=r"^The configuration of toy-slope has the field 'scale', a flag of `specjax run`",
    ):
        dataclasses.replace(TOY, config=Taken, scales={})


def test_list_shows_every_experiment(capsys):
    assert main(["list"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["name", "paper", "title"]
    assert [re.split(r"\s{2,}", line) for line in lines] == [
        [toy.name, "toy", toy.title] for toy in (TOY, OTHER)
    ]


@pytest.mark.integration
def test_run_writes_a_whole_result_and_the_report(capsys):
    assert main(["run", "toy-slope", "--seed", "7"]) == 0
    assert names("results") == "report.html report.md toy-slope"
    assert names("results/toy-slope") == FILES
    config = stored("toy-slope")["config"]
    assert config["scale"] == "quick"
    assert config["seed"] == 7
    assert config["config"] == json.loads(json.dumps(dataclasses.asdict(Config(seed=7))))
    assert config["versions"]["jax"] == jax.__version__
    versions = "equinox jax jaxlib numpy optax python specjax"
    assert " ".join(sorted(config["versions"])) == versions
    assert config["device"]["platform"] == jax.devices()[0].platform
    with xr.open_datatree("results/toy-slope/data.nc", engine="h5netcdf") as tree:
        assert tree["points"]["y"].shape == (3, 100)
    assert stored("toy-slope")["tables"][0]["rows"] == [["2"], ["4"], ["8"]]
    out = capsys.readouterr().out
    assert re.search(r"toy-slope +holds +1 +1 +\[0\.9\d+, 1\.0\d+\] +confirmed\n", out)
    assert re.search(r"toy-slope +fails +– +1 +\[0\.9\d+, 1\.0\d+\] +refuted\n", out)
    assert "results/toy-slope/figure.png" in out
    assert "results/report.html" in out


@pytest.mark.integration
def test_run_records_the_commit_of_a_checkout_only():
    main(["run", "toy-slope"])
    checkout = Path(specjax.__file__).parent
    head = subprocess.run(
        ["git", "-C", checkout, "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    )
    tracked = subprocess.run(
        ["git", "-C", checkout, "ls-files", "report/_record.py"], capture_output=True, check=False
    )
    expected = head.stdout.strip() if head.returncode == 0 and tracked.stdout else None
    assert stored("toy-slope")["config"]["commit"] == expected


@pytest.mark.integration
def test_flags_of_every_type_reach_the_configuration():
    words = (
        "--scale smoke --out a/b --widths 3,5 --steps=1e-3,2 --learning_rate 2 --nesterov true"
        " --method svd"
    )
    assert main(["run", "toy-slope", *words.split()]) == 0
    assert stored("toy-slope", "a/b")["config"]["config"] == {
        "seed": 0,
        "widths": [3, 5],
        "steps": [0.001, 2.0],
        "learning_rate": 2.0,
        "nesterov": True,
        "method": "svd",
    }


def test_help_of_an_experiment_shows_flags_with_scale_defaults(capsys):
    with pytest.raises(SystemExit) as leaving:
        main(["run", "toy-slope", "--scale", "paper", "--help"])
    assert leaving.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    for words in (
        "A toy slope A line through points.",
        "--seed INT root of all randomness (default: 0)",
        "--widths INT,INT,... (default: 2,1024)",
        "--learning-rate FLOAT 100% of the step (default: 0.1)",
        "--nesterov true|false (default: false)",
    ):
        assert words in text


@pytest.mark.parametrize(
    "arguments", [["--help"], ["list", "--help"], ["run", "--help"], ["reproduce", "-h"]]
)
def test_help_everywhere(arguments, capsys):
    with pytest.raises(SystemExit) as leaving:
        main(arguments)
    assert leaving.value.code == 0
    assert capsys.readouterr().out.startswith("usage: specjax")


@pytest.mark.integration
def test_a_second_run_joins_the_report():
    main(["run", "toy-slope"])
    main(["run", "other-toy"])
    page = Path("results/report.html").read_text()
    assert page.index("A toy slope</strong>") < page.index("Another toy</strong>")


@pytest.mark.integration
@pytest.mark.skipif(_peak_memory.peak() is None, reason="the system does not count the peak")
def test_a_result_holds_the_memory_of_its_run():
    assert main(["run", "toy-slope"]) == 0
    memory = report.load(Path("results/toy-slope")).record.memory
    # An interpreter with JAX in it holds more than 50 MB, and this process no more than it does.
    assert 50e6 < memory <= _peak_memory.peak()


def test_what_was_run_is_told_where_the_report_cannot_be_made(capsys, monkeypatch):
    """As beside a result that a later version has put there during the run."""

    def refused(_):
        raise ValueError("results/other-toy does not hold a result this version can read.")

    monkeypatch.setattr(report, "refresh", refused)
    assert main(["run", "toy-slope"]) == 2
    reported = capsys.readouterr()
    assert (
        reported.err == "specjax: results/other-toy does not hold a result this version can read.\n"
    )
    assert re.search(r"toy-slope +holds +", reported.out)


@pytest.mark.integration
def test_reproduce_runs_all_and_agrees(register, capsys):
    register(TOY, dataclasses.replace(OTHER, headlines=()))
    assert main(["reproduce", "--scale", "smoke", "--all"]) == 0
    output = capsys.readouterr()
    assert output.err == ""
    assert "[1/2] toy-slope ...\n" in output.out
    assert re.search(
        r"\[1/2\] toy-slope: \d+\.\d s, fails refuted; 1 refuted, 1 confirmed\n", output.out
    )
    assert re.search(r"\[2/2\] other-toy: \d+\.\d s, 1 refuted, 1 confirmed\n", output.out)
    assert re.search(r"other-toy +holds +1 +1 ", output.out)
    assert names("results") == "other-toy report.html report.md toy-slope"
    assert "(expected" not in output.out


@pytest.mark.integration
def test_reproduce_runs_headlines_alone_by_default(register, capsys):
    register(TOY, dataclasses.replace(OTHER, headlines=()))
    assert main(["reproduce", "--scale", "smoke"]) == 0
    output = capsys.readouterr()
    assert output.err == ""
    first, done, *rest = output.out.splitlines()
    assert first == "[1/1] toy-slope ..."
    assert re.fullmatch(r"\[1/1\] toy-slope: \d+\.\d s, fails refuted", done)
    assert names("results") == "report.html report.md toy-slope"
    assert all(len(line) <= 80 for line in rest)
    paper = rest.index("toy")
    assert re.fullmatch(r"  Every point is above 3/2\. +refuted +1, against 1\.5", rest[paper + 1])
    assert " ".join(rest[paper + 2 :]).split()[:5] == [
        "confirmed",
        "in",
        "control",
        "“one",
        "more”",
    ]
    assert rest[-4:-1] == [
        "Experiments: 1, on papers: 1, statements: 1 (1 refuted).",
        "Statements beside the headlines: 1, not judged; `specjax reproduce --all` judges",
        "all, `specjax run NAME` those of one experiment.",
    ]
    assert rest[-1] == "report: results/report.md and results/report.html"


@pytest.fixture
def computed(register):
    """Register an experiment of two sweeps, of which its headline reads one, and return the names
    of those that were computed.
    """
    found = []

    def part(name):
        def measure(config, key):
            found.append(name)
            return run(config, key)["points"]

        return measure

    @lab.statement("theorem-1", "More are one.", rivals={"two": 2.0}, holds=True)
    def more(_, data):
        return lab.equals(data["more"]["y"], 1.0)

    parts = {"points": part("points"), "more": part("more")}
    toy = {"measure": parts, "statements": (fails, more), "headlines_read": ("points",)}
    register(dataclasses.replace(TOY, **toy))
    return found


@pytest.mark.integration
def test_headlines_alone_compute_what_they_read(computed):
    assert main(["reproduce", "--scale", "smoke"]) == 0
    assert computed == ["points"]
    alone = report.load(Path("results/toy-slope"))
    assert alone.record.headlines_alone
    assert set(report.load_data("results/toy-slope")) == {"points"}
    # The report says what it leaves out, and the rows of other statements are not run.
    for page in ("report.md", "report.html"):
        assert (
            "Statements beside the headlines: 1, not judged;" in Path("results", page).read_text()
        )
    for command in (["reproduce", "--all"], ["reproduce", "--only", "slope"], ["run", "toy-slope"]):
        computed.clear()
        assert main([*command, "--scale", "smoke"]) == 0
        assert computed == ["points", "more"]
        whole = report.load(Path("results/toy-slope"))
        assert not whole.record.headlines_alone
        assert (*alone.checks, whole.checks[1]) == whole.checks
        assert "beside the headlines" not in Path("results/report.md").read_text()


@pytest.mark.integration
def test_headlines_alone_can_be_judged_and_attacked(computed, capsys):
    """From their data, which lack those of other statements."""
    assert main(["reproduce", "--scale", "smoke"]) == 0
    assert main(["judge", "toy-slope"]) == 0
    assert main(["attack", "toy-slope", "--stored", "results"]) == 0
    assert computed == ["points"]
    assert "more" not in [check.name for check in report.load(Path("results/toy-slope")).checks]
    assert "toy-slope" in capsys.readouterr().out


def test_headlines_alone_are_no_result_of_an_experiment(computed, tmp_path, monkeypatch, capsys):
    """Neither for a record nor for what is left to run."""
    monkeypatch.setattr(records, "home", lambda: tmp_path / "records")
    assert main(["reproduce"]) == 0
    sentence = (
        r"The result of toy-slope has its headlines alone; make one of all its statements by"
        r" `specjax run toy-slope`\."
    )
    with pytest.raises(ValueError, match=sentence):
        records.save(report.load(Path("results/toy-slope")), tmp_path / "records")
    capsys.readouterr()
    assert main(["reproduce", "--continue"]) == 0
    assert "nothing is left to run" in capsys.readouterr().out
    assert main(["reproduce", "--all", "--continue"]) == 0
    assert capsys.readouterr().out.startswith("1 of 1 experiments have neither")
    assert computed == ["points", "points", "more"]


def test_reproduce_needs_a_headline_or_all(register, capsys):
    register(dataclasses.replace(TOY, headlines=()))
    assert main(["reproduce"]) == 2
    sentence = "specjax: No experiment has a headline; `specjax reproduce --all` runs them all.\n"
    assert capsys.readouterr().err == sentence
    assert list(Path().iterdir()) == []


@pytest.mark.integration
@pytest.mark.parametrize("pattern", ["slope", "toy-*", "toy-slope"])
def test_only_selects_by_part_or_pattern(pattern):
    assert main(["reproduce", "--scale", "smoke", "--only", pattern]) == 0
    assert names("results") == "report.html report.md toy-slope"


@pytest.mark.integration
def test_reproduce_names_verdicts_other_than_expected(register, capsys):
    register(
        TOY, dataclasses.replace(OTHER, statements=(holds, dataclasses.replace(fails, holds=True)))
    )
    assert main(["reproduce", "--scale", "smoke"]) == 1
    output = capsys.readouterr()
    assert output.err == "specjax: other-toy/fails is refuted, expected confirmed\n"
    assert output.out.count("refuted (expected: confirmed)") == 1


@pytest.mark.integration
def test_reproduce_names_verdicts_other_than_recorded(capsys, monkeypatch, tmp_path):
    """Of all that was run; whether it was expected is another question, and decides the exit
    code.
    """
    monkeypatch.setattr(records, "home", lambda: tmp_path / "records")
    assert main(["run", "toy-slope", "--out", "earlier"]) == 0
    earlier = report.load(Path("earlier/toy-slope"))
    checks = (
        earlier.checks[0],
        dataclasses.replace(earlier.checks[1], verdict="inconclusive", interval=(-1.0, 1.0)),
    )
    records.save(dataclasses.replace(earlier, checks=checks), tmp_path / "records")
    capsys.readouterr()
    assert main(["reproduce", "--scale", "smoke"]) == 0
    *_, title, line = capsys.readouterr().out.splitlines()
    assert title == "not as recorded:"
    reported = (
        r"toy-slope/fails is refuted, 1 \[.+\]; the record says inconclusive, 1 \[-1, 1\] \(at"
        r" scale smoke, recorded at quick\)"
    )
    assert re.fullmatch(reported, line)
    (tmp_path / "records" / "toy-slope.json").write_text('{"format": 0}')
    assert main(["reproduce", "--scale", "smoke"]) == 2
    sentence = capsys.readouterr().err
    assert re.fullmatch(
        r"specjax: \S*toy-slope.json is a record of format 0, and this version reads 3; make it"
        r" again\.\n",
        sentence,
    )


@pytest.mark.integration
def test_continue_runs_names_without_record_or_result(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(records, "home", lambda: tmp_path / "records")
    assert main(["run", "toy-slope", "--out", "earlier"]) == 0
    records.save(report.load(Path("earlier/toy-slope")), tmp_path / "records")
    # What a larger scale needs is not decided by a result of a smaller one.
    assert main(["run", "other-toy", "--scale", "smoke"]) == 0
    capsys.readouterr()
    assert main(["reproduce", "--continue"]) == 0
    reported = capsys.readouterr().out
    assert reported.startswith(
        "1 of 2 experiments have neither a record nor a result of scale quick or a larger one.\n"
    )
    assert "[1/1] other-toy ...\n" in reported
    assert "toy-slope ..." not in reported.replace("other-toy ...", "")
    assert not Path("results/.unfinished").exists()
    assert main(["reproduce", "--continue"]) == 0
    nothing = (
        "All 2 experiments have a record or a result of scale quick or a larger one; nothing is"
        " left to run.\n"
    )
    assert capsys.readouterr().out == nothing
    assert main(["reproduce", "--continue", "--scale", "paper", "--only", "slope"]) == 0
    reported = capsys.readouterr().out
    assert re.match(
        r"1 of 1 experiments have neither .*; by their records of smaller ones they take longer"
        r" than 0:",
        reported,
    )


@pytest.mark.integration
def test_a_continued_reproduce_leaves_out_what_it_had_finished(register, capsys, monkeypatch):
    """And keeps nothing of it: its result is there."""

    discarded = []
    monkeypatch.setattr(report, "discard", lambda result, _: discarded.append(result.record.name))
    register(TOY, dataclasses.replace(OTHER, figure=interrupt))
    command = ["reproduce", "--all", "--scale", "smoke", "--continue", "--jobs", "1"]
    assert main(command) == 130
    assert discarded == ["toy-slope"]
    register(TOY, OTHER)
    capsys.readouterr()
    assert main(command) == 0
    assert capsys.readouterr().out.startswith("1 of 2 experiments have neither")


@pytest.mark.integration
def test_run_marks_an_unexpected_verdict_but_has_done_its_work(register, capsys):
    register(dataclasses.replace(TOY, statements=(holds, dataclasses.replace(fails, holds=True))))
    assert main(["run", "toy-slope"]) == 0
    assert "refuted (expected: confirmed)" in capsys.readouterr().out


@pytest.mark.integration
@pytest.mark.filterwarnings("default")
def test_a_warning_is_printed_once_without_its_source_line(register, capsys):
    def warned(config, save):
        for _ in range(2):
            warnings.warn("The intervals are rough;\n run more seeds.", UserWarning, stacklevel=1)
        warnings.warn("They are rough.", UserWarning, stacklevel=1)
        return run(config, save)

    register(dataclasses.replace(TOY, measure=warned))
    with warnings.catch_warnings():
        # As outside of tests: pytest keeps warnings that are not errors for its summary.
        warnings.showwarning = lambda *given, **_: sys.stderr.write(
            warnings.formatwarning(*given[:4])
        )
        assert main(["run", "toy-slope"]) == 0
    reported = (
        "specjax: warning: The intervals are rough; run more seeds.\nspecjax: warning: They are"
        " rough.\n"
    )
    assert capsys.readouterr().err == reported
    assert "test_cli.py" in warnings.formatwarning("They are rough.", UserWarning, __file__, 1)


@pytest.mark.integration
def test_judge_gives_verdicts_of_new_statements_on_stored_data(register, capsys, monkeypatch):
    assert main(["run", "toy-slope", "--seed", "7"]) == 0
    ran, data = (
        stored("toy-slope"),
        xr.open_datatree("results/toy-slope/data.nc", engine="h5netcdf").load(),
    )

    @lab.statement("theorem-1", "Twice the mean is two.", rivals={"one": 1.0})
    def twice(config, data):
        return lab.equals(config.widths[0] * data["points"]["y"], 2.0)

    def again(*_):
        raise RuntimeError("It was run again.")

    register(
        dataclasses.replace(TOY, title="Another title", measure=again, statements=(twice, fails))
    )
    monkeypatch.setattr("specjax.report._record._commit", lambda: ("0123", True))
    capsys.readouterr()
    assert main(["judge"]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"toy-slope +twice +2 +2 .* confirmed\n", printed)
    now = stored("toy-slope")
    assert [check["verdict"] for check in now["checks"]] == ["confirmed", "refuted"]
    changed = {"title": "Another title", "judged": "0123 with changes"}
    assert now["config"] == {**ran["config"], **changed}
    assert xr.open_datatree("results/toy-slope/data.nc", engine="h5netcdf").identical(data)
    assert "Another title" in Path("results/report.html").read_text()


@pytest.mark.integration
def test_judge_exits_with_1_at_an_unexpected_verdict(register, capsys):
    main(["run", "toy-slope"])
    register(dataclasses.replace(TOY, statements=(holds, dataclasses.replace(fails, holds=True))))
    assert main(["judge", "toy-slope"]) == 1
    assert capsys.readouterr().err == "specjax: toy-slope/fails is refuted, expected confirmed\n"


@pytest.mark.integration
def test_judge_leaves_a_result_that_it_does_not_know_as_it_was(register, capsys):
    assert main(["run", "toy-slope"]) == 0
    register(dataclasses.replace(TOY, name="another"))
    assert main(["run", "another"]) == 0
    register(TOY)
    before = stored("another")
    capsys.readouterr()
    assert main(["judge"]) == 0
    output = capsys.readouterr()
    assert "toy-slope" in output.out
    assert (
        output.err
        == "specjax: another is as it was, since `specjax list` has no experiment of this name.\n"
    )
    assert stored("another") == before


@pytest.mark.integration
@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"config": lab.Config, "scales": {}},
            (
                r"toy-slope no longer has the configuration of the result in \S+ \(.*\); run it"
                r" again\."
            ),
        ),
        (
            {"statements": (of_what_is_not_there,), "headlines": ()},
            r"toy-slope cannot judge the data in \S+ \('gone'\); run it again\.",
        ),
    ],
)
def test_judge_refuses_what_is_of_another_experiment(register, capsys, change, sentence):
    main(["run", "toy-slope"])
    before = stored("toy-slope")
    register(dataclasses.replace(TOY, **change))
    capsys.readouterr()
    assert main(["judge", "toy-slope"]) == 2
    assert re.fullmatch(f"specjax: {sentence}\n", capsys.readouterr().err)
    assert stored("toy-slope") == before


@pytest.mark.integration
def test_a_run_beside_what_cannot_be_read_leaves_that_out():
    assert main(["run", "other-toy"]) == 0
    Path("results/other-toy").rename("results/backup")
    reported = (
        r"^Left out: results/backup holds a result by the name of 'other-toy', which is not that of"
        r" its folder; rename the"
    )
    with pytest.warns(report.LeftOutWarning, match=reported):
        assert main(["run", "toy-slope"]) == 0
    assert "A toy slope" in Path("results/report.md").read_text()
    assert not Path("results/.unfinished").exists()


@pytest.mark.integration
def test_judge_leaves_out_what_cannot_be_read(capsys):
    for name in ("toy-slope", "other-toy"):
        assert main(["run", name]) == 0
    with Path("results/other-toy/data.nc").open("r+b") as file:
        file.truncate(1000)
    capsys.readouterr()
    sentence = (
        r"specjax: results/other-toy/data.nc cannot be read \(.*\); run its experiment again\.\n"
    )
    assert main(["judge", "other-toy"]) == 2
    assert re.fullmatch(sentence, capsys.readouterr().err)
    assert main(["judge"]) == 1
    reported = capsys.readouterr()
    assert re.fullmatch(sentence, reported.err)
    assert re.search(r"toy-slope +holds +", reported.out)
    # As an earlier version left it.
    Path("results/other-toy/SHA256SUMS").unlink()
    assert main(["judge", "other-toy"]) == 2
    assert re.fullmatch(sentence, capsys.readouterr().err)


@pytest.mark.integration
def test_an_experiment_that_raises_does_not_lose_the_others(register, capsys):
    def fail(*_):
        raise RuntimeError("out of\nmemory")

    register(dataclasses.replace(TOY, measure=fail), OTHER)
    assert main(["reproduce", "--scale", "smoke"]) == 1
    output = capsys.readouterr()
    assert output.err.endswith("specjax: toy-slope failed with RuntimeError: out of memory\n")
    assert "Traceback" in output.err
    assert names("results") == "other-toy report.html report.md"


@pytest.mark.integration
def test_nothing_is_written_when_every_experiment_raises(register, capsys):
    register(dataclasses.replace(TOY, figure=lambda *_: 1 / 0))
    assert main(["reproduce", "--all"]) == 1
    assert "toy-slope failed with ZeroDivisionError" in capsys.readouterr().err
    assert list(Path().iterdir()) == []


def test_a_defect_of_an_experiment_is_not_a_user_error(register):
    def draw(*_):
        raise ValueError("x and y must have same first dimension")

    register(dataclasses.replace(TOY, figure=draw))
    with pytest.raises(ValueError, match="same first dimension"):
        main(["run", "toy-slope"])
    assert list(Path().iterdir()) == []


@pytest.mark.integration
def test_a_failed_run_keeps_the_old_result(capsys):
    main(["run", "toy-slope", "--seed", "1"])
    capsys.readouterr()
    assert main(["run", "toy-slope", "--seed", "2", "--learning-rate=-1"]) == 2
    assert stored("toy-slope")["config"]["seed"] == 1


@pytest.mark.integration
def test_an_interrupt_is_one_line_and_leaves_nothing(register, capsys):
    register(OTHER, dataclasses.replace(TOY, figure=interrupt))
    assert main(["reproduce", "--all"]) == 130
    assert re.fullmatch(r"specjax: interrupted[^\n]*\n", capsys.readouterr().err)
    assert names("results") == "other-toy"


def test_an_output_that_nobody_reads_is_no_error():
    """As after `specjax list | head`: no traceback, and the exit code of a process that a closed
    pipe has ended.
    """
    read, write = os.pipe()
    os.close(read)
    # Python then holds the words back until its end, where an exception could not be caught any
    # more.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [Path(sys.executable).with_name("specjax"), "--help"]
    done = subprocess.run(
        command, stdout=write, stderr=subprocess.PIPE, env=environment, text=True, check=False
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


def test_only_what_goes_on_says_so(capsys, monkeypatch):
    monkeypatch.setattr("specjax.experiments.load_all", interrupt)
    assert main(["list"]) == 130
    assert capsys.readouterr().err == "specjax: interrupted.\n"


def test_a_file_in_the_place_of_what_is_unfinished_is_named(capsys):
    Path("results").mkdir()
    Path("results/.unfinished").write_text("mine")
    assert main(["run", "toy-slope"]) == 2
    assert re.fullmatch(
        r"specjax: results/.unfinished/toy-slope-\w+ cannot be made \(Not a directory\); choose"
        r" another --out\.\n",
        capsys.readouterr().err,
    )


@pytest.mark.integration
def test_an_interrupted_reproduce_computes_nothing_again(register, capsys):
    """Not that of the experiment at which it was stopped, and not that of those before it."""
    computed = []

    def seen(x):
        computed.append(x.size)
        return np.asarray(x)

    def swept(config, _):
        def measure(key, width):
            x = sizes.normal(key, (width,)).sum()
            return {
                "y": jax.pure_callback(
                    seen, jax.ShapeDtypeStruct((), x.dtype), x, vmap_method="expand_dims"
                )
            }

        widths = sweep.widths(*config.widths)
        return {
            "points": (
                sweep.run(
                    measure, {"width": widths}, num_seeds=4, key=jax.random.key(0), plan="exact"
                )
                + 1
            )
        }

    toy = dataclasses.replace(TOY, measure=swept, statements=(finite,), headlines=())
    other = dataclasses.replace(toy, name="other-toy", scales={"smoke": {"widths": (2, 4, 5)}})
    register(toy, dataclasses.replace(other, figure=interrupt))
    assert main(["reproduce", "--scale", "smoke", "--all"]) == 130
    assert capsys.readouterr().err.endswith(
        "interrupted; what is finished is kept, and the same command goes on from there.\n"
    )
    assert sum(computed) == 4 * (2 + 3)
    computed.clear()
    # Another configuration is another run, and leaves what the first has kept alone.
    assert main(["run", "other-toy", "--seed", "3", "--scale", "quick", "--out", "results"]) == 130
    computed.clear()
    register(toy, other)
    assert main(["reproduce", "--scale", "smoke", "--all"]) == 0
    assert sum(computed) == 0
    reported = capsys.readouterr().err
    assert (
        "specjax: toy-slope goes on from what is kept in results/.unfinished/toy-slope-" in reported
    )
    assert (
        "specjax: other-toy goes on from what is kept in results/.unfinished/other-toy-" in reported
    )
    (left,) = Path("results/.unfinished").iterdir()
    assert main(["run", "other-toy", "--seed", "3", "--scale", "quick", "--out", "results"]) == 0
    assert not left.parent.exists()


@pytest.mark.integration
def test_a_long_run_without_terminal_prints_its_progress(register, capsys, monkeypatch):
    clock = iter(np.arange(0, 1000, 1.2))
    monkeypatch.setattr("specjax.sweep._progress.perf_counter", lambda: float(next(clock)))

    def swept(config, _):
        def measure(key, width):
            return {"y": sizes.normal(key, (width,)).sum()}

        over = {"width": sweep.widths(*config.widths)}
        return {
            "points": sweep.run(
                measure, over, num_seeds=4, key=jax.random.key(0), plan="exact", chunk=4
            )
        }

    register(dataclasses.replace(TOY, measure=swept, statements=(finite,), headlines=()))
    assert main(["run", "toy-slope", "--scale", "smoke"]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert re.fullmatch(
        r"bucket 1/2 \(width=2\): seeds 0 to 3 in .* s, .* seeds/s, \d\d:\d\d left", line
    )
    assert logging.getLogger("specjax").level == logging.NOTSET


BAD_INPUT = {
    "": (
        r"Say what to do: list, sweep, run, scaling, reproduce, judge, attack, ledger, check; see"
        r" `specjax --help`\."
    ),
    "lst": r"There is no command 'lst'; did you mean list\?",
    "frobnicate": (
        r"There is no command 'frobnicate'; there are list, sweep, run, scaling, reproduce, judge,"
        r" attack, ledger, check, completion\."
    ),
    "--frob": r"There is no flag '--frob'; there are --help, --version\.",
    "list --scale smoke": r"There is no flag '--scale'; there are --help, --json\.",
    "check": r"FOLDER is missing; see `specjax check --help`\.",
    "list all=3": r"There is no place for 'all=3' here; see `specjax list --help`\.",
    "list all": r"There is no place for 'all' here; see `specjax list --help`\.",
    "run": (
        r"The experiment's name comes first, as in `specjax run NAME`; `specjax list` shows the"
        r" names\."
    ),
    "run --scale smoke toy-slope": (
        r"The experiment's name comes first, as in `specjax run NAME`; .*"
    ),
    "run toy-slop": r"There is no experiment 'toy-slop'; did you mean toy-slope\?",
    "run Toy-Slope": r"There is no experiment 'Toy-Slope'; did you mean toy-slope\?",
    "run toy_slope": r"There is no experiment 'toy_slope'; did you mean toy-slope\?",
    "run toy-slope --explain=yes": r"--explain: ignored explicit argument 'yes'; see .*",
    "run toy-slope --steps=": (
        r"--steps takes comma-separated finite numbers, as in --steps FLOAT,FLOAT,\.\.\., not ''\."
    ),
    "run zzz": r"There is no experiment 'zzz'; there are toy-slope, other-toy\.",
    "run toy-slope extra": (
        r"There is no place for 'extra' here; see `specjax run toy-slope --help`\."
    ),
    "run toy-slope --scale huge": r"There is no scale 'huge'; there are smoke, quick, paper\.",
    "run toy-slope --scale papr": r"There is no scale 'papr'; did you mean paper\?",
    "run toy-slope --scale": (
        r"--scale: expected one argument; see `specjax run toy-slope --help`\."
    ),
    "run toy-slope --width 3": r"There is no flag '--width'; did you mean --widths\?",
    "run toy-slope --learning_rte=3": (
        r"There is no flag '--learning-rte'; did you mean --learning-rate\?"
    ),
    "run toy-slope --seed 1.5": r"--seed takes an integer, not '1\.5'\.",
    "run toy-slope --seed": r"--seed: expected one argument; see `specjax run toy-slope --help`\.",
    "run toy-slope --widths 2,x": (
        r"--widths takes comma-separated integers, as in --widths INT,INT,\.\.\., not '2,x'\."
    ),
    "run toy-slope --steps 1,,2": r"--steps takes comma-separated finite numbers, .*, not '1,,2'\.",
    "run toy-slope --learning-rate nan": r"--learning-rate takes a finite number, not 'nan'\.",
    "run toy-slope --learning-rate fast": r"--learning-rate takes a finite number, not 'fast'\.",
    "run toy-slope --nesterov yes": r"--nesterov takes true or false, not 'yes'\.",
    "run toy-slope --widths 2,2": (
        r"widths needs different sizes in ascending order, each at least 1, got \(2, 2\)\."
    ),
    "run toy-slope --method newton": r"method must be another, not newton\.",
    "run toy-slope --learning-rate=-1": r"learning_rate must be positive; try 0\.1\.",
    "run toy-slope --out file": (
        r"Results cannot be written to file, because \S*file is not a folder; choose .*"
    ),
    "run toy-slope --out file/below": (
        r"Results cannot be written to file/below, because \S*file is not .*"
    ),
    "run toy-slope --out /proc/results": (
        r"Results cannot be written to /proc/results \(.+\); choose another --out\."
    ),
    "run toy-slope --out=": r"--out needs the name of a folder, as in `--out results`\.",
    "judge toy-slope": (
        r"There is no result in results/toy-slope; make it by `specjax run toy-slope`\."
    ),
    "judge zzz": r"There is no experiment 'zzz'; there are toy-slope, other-toy\.",
    "judge --out nowhere": (
        r"There is no result of an experiment in nowhere; `specjax run NAME --out nowhere` makes"
        r" one\."
    ),
    "reproduce toy-slope": (
        r"There is no place for 'toy-slope' here; see `specjax reproduce --help`\."
    ),
    "reproduce --only zzz": r"--only 'zzz' matches no experiment; `specjax list` shows the names\.",
    "reproduce --only=": r"--only needs a part of a name, as in `--only figure`; leave .*",
    "reproduce --jobs 0": r"--jobs needs a whole number from 1 on, got '0'; write .*",
    "reproduce --jobs two": r"--jobs needs a whole number from 1 on, got 'two'; write .*",
    "reproduce --onl toy": r"There is no flag '--onl'; did you mean --only\?",
    "reproduce --bogus": r"There is no flag '--bogus'; there are --help, .*--continue\.",
    "reproduce --scale huge": r"There is no scale 'huge'; there are smoke, quick, paper\.",
    "reproduce --out file": (
        r"Results cannot be written to file, because \S*file is not a folder; choose .*"
    ),
}


@pytest.mark.parametrize("line", BAD_INPUT)
def test_bad_input_is_one_sentence_and_writes_nothing(line, capsys):
    Path("file").write_text("mine")
    assert main(line.split()) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert re.fullmatch(f"specjax: {BAD_INPUT[line]}\n", output.err)
    assert [path.name for path in Path().iterdir()] == ["file"]


def test_a_run_that_cannot_be_judged_keeps_its_data(capsys):
    assert main(["run", "toy-slope", "--method", "other"]) == 2
    message = r"specjax: .*'?seed'?.*toy-slope\.unjudged\.nc.*\n"
    assert re.fullmatch(message, capsys.readouterr().err)
    assert [str(path) for path in Path("results").iterdir()] == ["results/toy-slope.unjudged.nc"]


@pytest.mark.parametrize("command", ["run toy-slope", "reproduce"])
def test_the_results_folder_is_tried_before_anything_is_computed(command, register):
    computed = []
    register(dataclasses.replace(TOY, measure=lambda config, _: computed.append(config)))
    Path("file").write_text("mine")
    assert main([*command.split(), "--out", "file/below"]) == 2
    assert computed == []


def test_the_console_entry_answers_without_loading_jax():
    source = (
        "import sys, specjax.cli; code = specjax.cli.main(['nonsense']); sys.exit('jax' in"
        " sys.modules or code)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=False
    )
    assert (answer.returncode, answer.stdout) == (2, "")
    entry = Path(sys.executable).with_name("specjax")
    for command in ([entry], [sys.executable, "-m", "specjax"]):
        answer = subprocess.run(
            [*command, "--version"],
            capture_output=True,
            text=True,
            check=False,
            env=dict(os.environ),
        )
        assert answer.stdout == f"specjax {specjax.__version__}\n"


@pytest.mark.parametrize(("chosen", "threads"), [(None, "1"), ("3", "3")])
def test_lapack_has_one_thread_unless_the_user_says_otherwise(chosen, threads, monkeypatch):
    monkeypatch.delenv("OPENBLAS_NUM_THREADS")
    if chosen is not None:
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", chosen)
    assert main(["nonsense"]) == 2
    assert os.environ["OPENBLAS_NUM_THREADS"] == threads
