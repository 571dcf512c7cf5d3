"""Where the seconds of `specjax reproduce` go: each experiment in a process of its own, without
JAX's cache of compiled programs.

Columns are seconds by the wall clock: starting Python and importing; tracing JAX programs,
lowering them and compiling them, as JAX reports them; the rest of the run, which is mostly
computing; judging with all attacks; drawing. Programs are also compiled in several threads at a
time: such seconds count once. The last column is processor seconds, of all threads.

    python scripts/benchmarks/reproduce.py [NAME ...] [--headlines] [--scale smoke]
"""

import argparse
import json
import os
import resource
import subprocess
import sys
from time import perf_counter

from timing import machine, table

from specjax import experiments
from specjax.jaxlib import with_cpu_flags

PARTS = ("import", "trace", "lower", "compile", "rest", "judge", "draw")
EVENTS = {
    "/jax/core/compile/backend_compile_duration": "compile",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lower",
    "/jax/core/compile/jaxpr_trace_duration": "trace",
}
"""Part by JAX's event; a moment that lies in several parts belongs to the first of them."""
Spans = list[tuple[float, float]]


def union(spans: Spans) -> float:
    """Seconds in at least one of the spans, which nest and overlap."""
    covered, end = 0.0, 0.0
    for begin, until in sorted(spans):
        covered += max(0.0, until - max(begin, end))
        end = max(end, until)
    return covered


def measured(name: str, scale: str, *, headlines: bool) -> dict[str, float]:
    """The seconds of each part but importing of one experiment, in this process."""
    import jax
    from jax import monitoring

    from specjax import report  # noqa: F401 - what the command imports

    experiment = experiments.load(name)
    if headlines:
        experiment = experiment.with_headlines_alone()
    config = experiment.at(scale)
    found = {}
    spans: dict[str, Spans] = {part: [] for part in EVENTS.values()}

    def listen(event: str, duration_secs: float, **_: str | int) -> None:
        if event in EVENTS:
            now = perf_counter()
            spans[EVENTS[event]].append((now - duration_secs, now))

    jax.devices()
    monitoring.register_event_duration_secs_listener(listen)
    start = perf_counter()
    data = experiment.run(config)
    seconds = perf_counter() - start
    so_far: Spans = []
    for part in EVENTS.values():
        before = union(so_far)
        so_far += spans[part]
        found[part] = union(so_far) - before
    found["rest"] = seconds - union(so_far)
    start = perf_counter()
    judgements = experiment.judge(config, data)
    found["judge"] = perf_counter() - start
    start = perf_counter()
    experiment.tabulate(config, data, judgements)
    experiment.draw(config, data).savefig(os.devnull, format="png")
    found["draw"] = perf_counter() - start
    used = resource.getrusage(resource.RUSAGE_SELF)
    return found | {"CPU": used.ru_utime + used.ru_stime, "programs": len(spans["compile"])}


def in_process(name: str, scale: str, *, headlines: bool) -> dict[str, float]:
    """`measured` in a new process, with the environment of the command line."""
    environment = os.environ | {
        "SPECJAX_COMPILATION_CACHE": "off",
        "OPENBLAS_NUM_THREADS": "1",
        "XLA_FLAGS": with_cpu_flags(os.environ.get("XLA_FLAGS", "")),
    }
    command = [sys.executable, __file__, name, "--scale", scale, "--here"]
    command += ["--headlines"] if headlines else []
    start = perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr}")
    seconds = perf_counter() - start
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    # What Python does before and after, too.
    return found | {"import": seconds - sum(found[part] for part in PARTS[1:])}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--scale", default="quick")
    parser.add_argument(
        "--headlines", action="store_true", help="what `specjax reproduce` computes without --all"
    )
    parser.add_argument("--smoke", action="store_true", help="two experiments at scale smoke")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.here:
        print(json.dumps(measured(args.names[0], args.scale, headlines=args.headlines)))
        return
    if args.smoke:
        args.names, args.scale = ["field-rate", "scalar-sequences"], "smoke"
    known = experiments.names()
    if args.headlines:
        known = [name for name in known if experiments.load(name).headlines]
    print(f"{machine('specjax', 'jax', 'numpy')}\n")
    columns = (*PARTS, "sum", "CPU")
    rows, total = [], dict.fromkeys((*columns, "programs"), 0.0)
    for name in args.names or known:
        found = in_process(name, args.scale, headlines=args.headlines)
        found["sum"] = sum(found[part] for part in PARTS)
        print(f"{name}: {found['sum']:.1f} s", file=sys.stderr, flush=True)
        rows.append([name, *(f"{found[c]:.1f}" for c in columns), f"{found['programs']:.0f}"])
        total = {key: total[key] + found[key] for key in total}
    rows.append(["all", *(f"{total[c]:.1f}" for c in columns), f"{total['programs']:.0f}"])
    print(f"Seconds at scale {args.scale}, one experiment at a time.\n")
    print(table([["experiment", *columns, "programs"], *rows]))


if __name__ == "__main__":
    main()
