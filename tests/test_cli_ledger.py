"""`specjax ledger`, `list` and `completion`: what a reader finds, and how wide it is printed."""

import json
import subprocess

import pytest

from specjax.cli import main

PAPER = "outer-product"


def printed(capsys, *arguments):
    assert main([*arguments]) == 0
    return capsys.readouterr().out


@pytest.mark.integration
def test_the_overview_counts_every_row_once(capsys, tmp_path):
    out = ("--out", str(tmp_path))
    overview = printed(capsys, "ledger", *out)
    (line,) = (line for line in overview.splitlines() if line.startswith(PAPER))
    rows = json.loads(printed(capsys, "ledger", PAPER, "--json", *out))[PAPER]
    assert sum(map(int, line.split()[1:])) == len(rows)


@pytest.mark.integration
@pytest.mark.parametrize("columns", [80, 100])
def test_lines_are_no_wider_than_the_terminal(columns, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    table = printed(capsys, "ledger", PAPER)
    detail = printed(capsys, "ledger", PAPER, "theorem-3")
    assert max(map(len, f"{table}{detail}".splitlines())) <= columns


@pytest.mark.parametrize("name", ["theorem-3", "Theorem 3", "theorem 3"])
def test_a_row_is_found_by_id_and_by_the_papers_words(name, capsys):
    text = printed(capsys, "ledger", PAPER, name)
    assert text.startswith(f"{PAPER}, Theorem 3 (theorem-3): holds\n")
    for label in ("where", "the paper", "measured", "nearest", "rivals", "figure"):
        assert f"\n  {label} " in text
    assert "specjax run table-c7" in text


@pytest.mark.integration
def test_words_find_all_rows_that_have_them(capsys):
    found = json.loads(printed(capsys, "ledger", PAPER, "off-diagonal", "--json"))[PAPER]
    assert len(found) > 3
    words = [f"{row['id']} {row['where']} {row['says']} {row['finding']}" for row in found]
    assert all("off-diagonal" in text.lower() for text in words)


@pytest.mark.integration
def test_a_status_selects_rows(capsys):
    found = json.loads(printed(capsys, "ledger", "--status", "false", "--json"))
    assert {row["status"] for rows in found.values() for row in rows} == {"false"}
    assert len(found) > 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["outer-produkt"], "There is no paper 'outer-produkt'; did you mean outer-product?"),
        (["Outer"], "There is no paper 'Outer'; did you mean outer-product?"),
        (["zzz"], "There is no paper 'zzz'; `specjax ledger` shows the names."),
        ([PAPER, "theorem-33"], "did you mean theorem-3"),
        ([PAPER, "zzzz"], f"called 'zzzz'; `specjax ledger {PAPER}` shows the names."),
        ([PAPER, "--status", "flase"], "did you mean false?"),
    ],
)
def test_a_wrong_name_is_answered_by_the_nearest(arguments, sentence, capsys):
    assert main(["ledger", *arguments]) == 2
    assert sentence in capsys.readouterr().err


def test_the_list_as_json_has_what_the_table_has(capsys):
    listed = json.loads(printed(capsys, "list", "--json"))
    lines = printed(capsys, "list").splitlines()[1:]
    assert [each["name"] for each in listed] == [line.split()[0] for line in lines]


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (["sw"], "sweep"),
        (["run", "domi"], "dominance"),
        (["ledger", "outer"], "outer-product"),
        (["ledger", "capac"], "capacity"),
        (["ledger", PAPER, "theorem-3"], "theorem-3"),
        (["attack", "associative"], "associative-memory"),
        (["sweep", "net.py:f", "--see"], "--seeds"),
    ],
)
def test_bash_completes(words, completed, capsys):
    script = printed(capsys, "completion", "bash")
    ask = f"COMP_WORDS=(specjax {' '.join(words)}); COMP_CWORD={len(words)}; _specjax"
    found = subprocess.run(
        ["bash", "-c", f'{script}\n{ask}; echo "${{COMPREPLY[@]}}"'],
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == completed
