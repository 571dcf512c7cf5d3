"""Which verdicts hang on last bits: every experiment under perturbations that no verdict may
notice.

    python scripts/maintain/perturbed_verdicts.py                 # all experiments at smoke scale
    python scripts/maintain/perturbed_verdicts.py --only convergence-curves,claims --scale quick

Each perturbation is a process of its own that runs the experiments one after another; the first,
`baseline`, compiles as the tests do, without most optimizations. Results are kept in `--out`, one
line of JSON for each experiment. What is printed is every verdict that differs from that of the
baseline; the exit code is 1 if there is any, or an experiment fails. At smoke scale a process takes
some twenty minutes of a core; `--out` also keeps what was compiled.
"""

import argparse
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

SERIAL = "--xla_cpu_enable_concurrency_optimized_scheduler=false"


class Perturbation(NamedTuple):
    """What differs from the baseline: the environment, flags of XLA, and by how many last bits
    samples are moved.
    """

    environment: Mapping[str, str] = MappingProxyType({})
    flags: str = ""
    draws: int = 0


OPTIMIZED = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "0"}
PERTURBATIONS = {
    "baseline": Perturbation(),
    "draws-up": Perturbation(draws=1),
    "draws-down": Perturbation(draws=-1),
    "threads": Perturbation({"OPENBLAS_NUM_THREADS": "2"}),
    # LAPACK as on another processor: of its kernels at least one differs from those of the
    # processor here.
    "haswell": Perturbation({"OPENBLAS_CORETYPE": "Haswell"}),
    "nehalem": Perturbation({"OPENBLAS_CORETYPE": "Nehalem"}),
    "level-1": Perturbation(OPTIMIZED, "--xla_backend_optimization_level=1"),
    "level-3": Perturbation(OPTIMIZED, "--xla_backend_optimization_level=3"),
    # Kernels, and instructions too, of a processor without AVX-512, as a user compiles.
    "processor": Perturbation(
        {"OPENBLAS_CORETYPE": "Haswell", **OPTIMIZED}, "--xla_cpu_max_isa=AVX2"
    ),
}


def moved(draw: Callable[..., Any], bits: int) -> Callable[..., Any]:
    """A function of `jax.random` with its samples times 1 + bits · ε, ε of their dtype: 1.2e-7 in
    float32.
    """

    @wraps(draw)
    def perturbed(*args: Any, **kwargs: Any) -> Any:
        import jax.numpy as jnp

        values = draw(*args, **kwargs)
        return values * jnp.asarray(1 + bits * float(jnp.finfo(values.dtype).eps), values.dtype)

    return perturbed


def run(names: list[str], scale: str, bits: int, path: Path) -> None:
    """What one process does: runs and judges the experiments and appends their checks, or the
    error, to `path`.
    """
    import jax

    if bits:
        # `specjax` takes both from the module at each call. Samples from [0, 1) stay below 1.
        jax.random.normal = moved(jax.random.normal, bits)
        jax.random.uniform = moved(jax.random.uniform, -abs(bits))
    from specjax import experiments
    from specjax.lab.check import Check

    with path.open("w") as lines:
        for name in names:
            found: dict[str, Any] = {"experiment": name}
            try:
                experiment = experiments.load(name)
                config = experiment.at(scale)
                checks = map(Check.from_judgement, experiment.judge(config, experiment.run(config)))
                found["checks"] = {c.name: [c.verdict, c.estimate, c.interval] for c in checks}
            except Exception:
                traceback.print_exc()
                found["checks"] = {"(run)": ["failed", float("nan"), None]}
            print(json.dumps(found), file=lines, flush=True)


def started(perturbation: str, names: list[str], scale: str, out: Path) -> subprocess.Popen[bytes]:
    """The process of a perturbation; its output goes to `out`."""
    changed = PERTURBATIONS[perturbation]
    environment = {
        **os.environ,
        "OPENBLAS_NUM_THREADS": "1",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
        "JAX_CPU_ENABLE_ASYNC_DISPATCH": "0",
        # Where only LAPACK differs, the programs are the baseline's: they are compiled once.
        "JAX_COMPILATION_CACHE_DIR": str((out / "programs").absolute()),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        **changed.environment,
        "XLA_FLAGS": f"{SERIAL} {changed.flags}".strip(),
    }
    call = (
        f"perturbed_verdicts.run({names!r}, {scale!r}, {changed.draws},"
        f" Path({str(result_path(out, perturbation))!r}))"
    )
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\nfrom pathlib import"
        f" Path\nimport perturbed_verdicts\n{call}"
    )
    with (out / f"{perturbation}.log").open("w") as log:
        return subprocess.Popen(
            [sys.executable, "-c", code], env=environment, stdout=log, stderr=log
        )


def result_path(out: Path, perturbation: str) -> Path:
    return out / f"{perturbation}.jsonl"


def found(out: Path, perturbation: str) -> dict[str, list[Any]]:
    """Verdict, measured value and interval of each check, by "experiment: check"."""
    lines = [json.loads(line) for line in result_path(out, perturbation).read_text().splitlines()]
    return {
        f"{line['experiment']}: {name}": check
        for line in lines
        for name, check in line["checks"].items()
    }


def differences(results: dict[str, dict[str, list[Any]]]) -> list[str]:
    """A line for every verdict that is not the baseline's, or that failed, is missing or is new;
    and for failures of the baseline.
    """
    baseline, *others = results.values()
    absent = ["absent", float("nan"), None]
    lines = [
        f"{name}: failed in the baseline"
        for name, check in baseline.items()
        if check[0] == "failed"
    ]
    for label, other in zip(list(results)[1:], others, strict=True):
        for name in baseline | other:
            before, after = baseline.get(name, absent), other.get(name, absent)
            if before[0] != after[0]:
                lines.append(f"{name}: {_told(before)}; with {label} {_told(after)}")
    return lines


def _told(check: list[Any]) -> str:
    verdict, measured, interval = check
    within = "" if interval is None else f" in [{interval[0]:.6g}, {interval[1]:.6g}]"
    return f"{verdict} at {measured:.9g}{within}"


def main() -> int:
    from specjax import experiments

    parser = argparse.ArgumentParser(
        description="Which verdicts hang on last bits.", allow_abbrev=False
    )
    parser.add_argument("--scale", default="smoke", choices=("smoke", "quick", "paper"))
    parser.add_argument("--only", help="names of experiments, separated by commas")
    parser.add_argument(
        "--perturbations",
        default=",".join(PERTURBATIONS),
        help="names, the one to compare with first",
    )
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument(
        "--out", type=Path, default=Path("results/perturbed"), help="folder of the results"
    )
    given = parser.parse_args()
    names = given.only.split(",") if given.only else experiments.names()
    labels = given.perturbations.split(",")
    if unknown := [x for x in names if x not in experiments.names()] + [
        x for x in labels if x not in PERTURBATIONS
    ]:
        parser.error(f"unknown: {', '.join(unknown)}")
    given.out.mkdir(parents=True, exist_ok=True)

    with ThreadPoolExecutor(given.jobs) as jobs:
        list(jobs.map(lambda label: started(label, names, given.scale, given.out).wait(), labels))
    lines = differences({label: found(given.out, label) for label in labels})
    print("\n".join(lines) or f"{len(found(given.out, labels[0]))} verdicts, and none changes.")
    return 1 if lines else 0


if __name__ == "__main__":
    raise SystemExit(main())
