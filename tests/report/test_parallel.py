"""Names worked on by several processes at a time: the same results, whichever ends, fails or is
interrupted.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from specjax.report import _parallel, records, runner

NAMES = ["a", "b", "c", "d", "e"]


def doubled(name):
    """With the process it ran in; says something on standard error."""
    print("first line\nsecond", "line", file=sys.stderr)
    return 2 * name, os.getpid()


def ended(name):
    """As a process that the system kills."""
    if name == "b":
        os._exit(9)
    return name


def failing(name):
    raise RuntimeError(name)


def endless(name):
    Path(name).write_text(str(os.getpid()))
    time.sleep(600)


@pytest.mark.integration
@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_every_name_has_its_result(jobs, capfd):
    begun = []
    found = dict(_parallel.each(doubled, NAMES, jobs, begun.append))
    assert begun == NAMES
    assert {name: result for name, (result, _) in found.items()} == {
        name: 2 * name for name in NAMES
    }
    ran_in = {process for _, process in found.values()}
    assert (ran_in == {os.getpid()}) == (jobs == 1)
    assert len(ran_in) <= jobs
    reported = capfd.readouterr().err.splitlines()
    front = "{}: " if jobs == 2 else ""
    assert sorted(reported) == sorted(
        f"{front}{line}".format(n) for n in NAMES for line in ("first line", "second line")
    )


@pytest.mark.slow
@pytest.mark.integration
def test_a_dead_process_costs_only_names_that_ran_beside_it():
    found = dict(_parallel.each(ended, NAMES, 2, lambda _: None))
    assert found.keys() == set(NAMES)
    assert found["b"] is None
    lost = {name for name, result in found.items() if result is None}
    assert lost <= {"a", "b", "c"}
    assert all(found[name] == name for name in set(NAMES) - lost)


@pytest.mark.integration
def test_an_exception_passes_through():
    with pytest.raises(RuntimeError, match=r"^[ab]$"):
        list(_parallel.each(failing, NAMES, 2, lambda _: None))


@pytest.mark.integration
@pytest.mark.parametrize(
    "how", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)]
)
def test_no_process_outlives_an_interrupt_or_its_parent(how, tmp_path):
    """Each would otherwise go on for ten minutes, and hold the lock of what it computes."""
    code = (
        "import signal\nfrom specjax.report import _parallel\nfrom tests.report.test_parallel"
        " import endless\n"
        # A shell that starts the tests in the background has them ignore interrupts, and what they
        # start.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "if __name__ == '__main__':\n    list(_parallel.each(endless, ['a', 'b', 'c'], 2, print))\n"
    )
    script = tmp_path / "script.py"
    script.write_text(code)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")]),
    }
    with (tmp_path / "told").open("w") as reported:
        parent = subprocess.Popen(
            [sys.executable, script],
            cwd=tmp_path,
            env=environment,
            stdout=reported,
            stderr=reported,
        )
    pids = [tmp_path / name for name in "ab"]
    deadline = time.monotonic() + 120
    while (
        not all(path.exists() and path.read_text() for path in pids) and time.monotonic() < deadline
    ):
        time.sleep(0.05)
    children = [int(path.read_text()) for path in pids]
    assert all(map(alive, children))
    parent.send_signal(how)
    assert parent.wait(60) != 0
    while any(map(alive, children)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(alive, children))
    assert not (tmp_path / "c").exists()


def alive(process):
    try:
        return "State:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except FileNotFoundError:
        return False


@pytest.mark.integration
def test_names_without_record_come_first_then_the_longest():
    recorded = records.load_all(Path(__file__).parents[2] / "records")
    slow, quick = sorted(recorded, key=lambda name: -recorded[name].record.seconds)[
        :: len(recorded) - 1
    ]
    assert runner.longest_first([quick, "new", slow], recorded) == ["new", slow, quick]


@pytest.mark.slow
def test_two_at_a_time_store_what_one_at_a_time_does(tmp_path):
    for jobs in ("1", "2"):
        specjax = Path(sys.executable).with_name("specjax")
        command = [
            specjax,
            "reproduce",
            "--scale",
            "smoke",
            "--only",
            "claims-[pn]*",
            "--jobs",
            jobs,
            "--out",
            tmp_path / jobs,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "[1/2] claims-" in done.stdout
        assert "[2/2] claims-" in done.stdout
    for name in ("claims-polar", "claims-newton"):
        one, two = ((tmp_path / jobs / name / "checks.json").read_bytes() for jobs in ("1", "2"))
        assert one == two
    assert not (tmp_path / "2" / ".unfinished").exists()
