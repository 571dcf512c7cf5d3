"""How often fits and relations confirm what is true of 21 laws, and what is false, at four
numbers of seeds.

Each law is a mean over eight widths from 16 to 2048 and noise of 10 % in each seed, half of whose
variance all widths share. It is sampled again and again, and in each sample the true statements are
judged, and false ones beside them: an exponent that is off by 0.05 or 0.1 with the true one as its
rival, a power law that lacks the logarithm, a constant that is off by 3 %, growth of what
approaches a limit, and a limit of what grows. A statement that is confirmed though it is false is
an error; one that is not decided is not.

    python scripts/benchmarks/verdicts.py --repetitions 200 --processes 2 --store verdicts.jsonl

With a store the same command continues where it was stopped.
"""

import argparse
import json
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr
from timing import table

from specjax import fits, lab

WIDTHS = 2.0 ** np.arange(4, 12)
SEEDS = (50, 200, 800, 3200)
NOISE = 0.1
SHARED = 0.5


@dataclass(frozen=True)
class Law:
    """A mean over widths, the exponent it has at large ones, whether it grows there like a power,
    and which limit it has.

    `grows` is None of a logarithm alone. `exponent` is None where the law has a logarithm; then
    `near` is a power that it looks like. `heavy` draws have no mean.
    """

    mean: Callable[[np.ndarray], np.ndarray]
    exponent: float | None = None
    near: float | None = None
    grows: bool | None = None
    limit: float | None = None
    heavy: bool = False


LAWS = {
    "x^1/2": Law(np.sqrt, 0.5, grows=True),
    "x^-1/2 (1 + 1/x)": Law(lambda x: x**-0.5 * (1 + 1 / x), -0.5, grows=False),
    "x (1 + x^-1/2)": Law(lambda x: x + x**0.5, 1.0, grows=True),
    "x^3/2 (1 - x^-2/3)": Law(lambda x: x**1.5 * (1 - x ** (-2 / 3)), 1.5, grows=True),
    "x (x + 1)(x + 2)": Law(lambda x: x * (x + 1) * (x + 2), 3.0, grows=True),
    "5 + x^0.7": Law(lambda x: 5 + x**0.7, 0.7, grows=True),
    "2 - x^-2/3": Law(lambda x: 2 - x ** (-2 / 3), 0.0, grows=False, limit=2.0),
    "1 + 3 x^-1/2": Law(lambda x: 1 + 3 * x**-0.5, 0.0, grows=False, limit=1.0),
    "x / log x": Law(lambda x: x / np.log(x), near=0.8, grows=True),
    "x log(x)^1/2": Law(lambda x: x * np.sqrt(np.log(x)), near=1.1, grows=True),
    "x^1/2 log x": Law(lambda x: x**0.5 * np.log(x), near=0.7, grows=True),
    "1 + log x": Law(lambda x: 1 + np.log(x), near=0.2),
    "x - 2 x^1/2 + 4": Law(lambda x: x - 2 * x**0.5 + 4, 1.0, grows=True),
    "x + 2 x^1/2 - 4": Law(lambda x: x + 2 * x**0.5 - 4, 1.0, grows=True),
    "x^1/2 + log x": Law(lambda x: x**0.5 + np.log(x), 0.5, grows=True),
    "x (log x + 2)": Law(lambda x: x * (np.log(x) + 2), near=1.1, grows=True),
    "x / (log x + 2)": Law(lambda x: x / (np.log(x) + 2), near=0.9, grows=True),
    "x^1/2, heavy tails": Law(np.sqrt, 0.5, grows=True, heavy=True),
    "2 - x^-1/2 + 3/x": Law(lambda x: 2 - x**-0.5 + 3 / x, 0.0, grows=False, limit=2.0),
    "1 + 3 x^-1/2 - 2/x": Law(lambda x: 1 + 3 * x**-0.5 - 2 / x, 0.0, grows=False, limit=1.0),
    "3 + log(x)^2": Law(lambda x: 3 + np.log(x) ** 2, near=0.3),
}
STATEMENTS = (
    "true: the exponent",
    "true: growth",
    "true: a limit",
    "true: the constant",
    "false: the exponent ± 0.05",
    "false: the exponent ± 0.1",
    "false: no logarithm",
    "false: the constant ± 3 %",
    "false: growth of a limit",
    "false: growth of a logarithm",
    "false: a limit of growth",
)


def sample(law: Law, seeds: int, rng: np.random.Generator) -> xr.DataArray:
    """Samples of the law; the noise of a seed is partly that of all its widths."""
    own, shared = rng.standard_normal((len(WIDTHS), seeds)), rng.standard_normal(seeds)
    noise = np.sqrt(1 - SHARED) * own + np.sqrt(SHARED) * shared
    # A ratio of two normals has no mean, and the median of this one is 0.
    noise = noise / np.abs(rng.standard_normal(seeds)) if law.heavy else noise
    return xr.DataArray(
        law.mean(WIDTHS)[:, None] * (1 + NOISE * noise),
        dims=("x", "seed"),
        coords={"x": WIDTHS},
        name="y",
    )


def judged(law: Law, y: xr.DataArray) -> Iterator[tuple[str, str]]:
    """Each statement that is true or false of the law, and its verdict."""
    by: fits.By = "median" if law.heavy else "mean"
    power = lab.scales_as(y, "x", 0.0, by=by)
    if law.exponent is not None:
        true = law.exponent
        yield (
            "true: the exponent",
            _scales(power, true, {"0.1 less": true - 0.1, "0.1 more": true + 0.1}),
        )
        for off, name in ((0.05, "false: the exponent ± 0.05"), (0.1, "false: the exponent ± 0.1")):
            yield from (
                (name, _scales(power, true + side * off, {"the true one": true}))
                for side in (-1, 1)
            )
    if law.near is not None:
        for exponent in (law.near, law.near + 0.05, law.near - 0.05, round(law.near * 2) / 2):
            yield (
                "false: no logarithm",
                _scales(power, exponent, {"less": exponent - 0.1, "more": exponent + 0.1}),
            )
        yield "false: no logarithm", _scales(power, law.near, {"with it": round(law.near * 2) / 2})
    growth, limit = lab.grows(y, "x", by=by).judge({}), lab.saturates(y, "x", by=by).judge({})
    if law.grows or law.grows is None:
        # A logarithm alone has no limit and grows like no power.
        yield ("true: growth" if law.grows else "false: growth of a logarithm"), growth.verdict
        yield "false: a limit of growth", limit.verdict
    else:
        yield "false: growth of a limit", growth.verdict
        # What vanishes has the limit 0.
        yield ("true: a limit" if law.limit else "false: a limit of growth"), limit.verdict
    yield from _constants(law, y, by)


def _scales(power: lab.Relation, exponent: float, rivals: dict[str, float]) -> str:
    return power.against(exponent).judge(rivals).verdict


def _constants(law: Law, y: xr.DataArray, by: fits.By) -> Iterator[tuple[str, str]]:
    form = xr.DataArray(law.mean(WIDTHS), {"x": WIDTHS})
    rivals = {f"× {factor}": form * factor for factor in (0.97, 1.03)}
    yield "true: the constant", lab.equals(y, form, by=by).judge(rivals).verdict
    for wrong in rivals.values():
        yield (
            "false: the constant ± 3 %",
            lab.equals(y, wrong, by=by).judge({"the true one": form}).verdict,
        )


def counted(name: str, seeds: int, repetition: int) -> Counter[tuple[str, str, int, str]]:
    """The verdicts of one sample of a law."""
    rng = np.random.default_rng([list(LAWS).index(name), seeds, repetition])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fits.HeavyTailWarning)
        found = judged(LAWS[name], sample(LAWS[name], seeds, rng))
        return Counter((name, statement, seeds, verdict) for statement, verdict in found)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=200)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--store", type=Path, help="file to which samples are added as they end")
    parser.add_argument("--laws", nargs="*", default=list(LAWS))
    parser.add_argument("--smoke", action="store_true", help="one sample of each law")
    args = parser.parse_args()
    if args.smoke:
        args.repetitions = 1
    jobs = [
        (name, seeds, r) for r in range(args.repetitions) for name in args.laws for seeds in SEEDS
    ]
    counts = _counts(jobs, args.processes, args.store)
    print(
        f"Verdicts of {args.repetitions} samples a law and number of seeds, as confirmed / refuted"
        " / inconclusive."
    )
    rows = [["statement and law", *(f"{seeds} seeds" for seeds in SEEDS)]]
    for statement in STATEMENTS:
        for name in args.laws:
            cells = [_cell(counts, name, statement, seeds) for seeds in SEEDS]
            if any(cells):
                rows.append([f"{statement}, {name}", *cells])
    print(table(rows))
    for statement in STATEMENTS:
        shares = [_share(counts, statement, seeds) for seeds in SEEDS]
        if all(shares):
            print(f"{statement}: " + ", ".join(shares))


def _counts(
    jobs: list[tuple[str, int, int]], processes: int, store: Path | None
) -> Counter[tuple[str, str, int, str]]:
    """The verdicts on all samples; those that lie in the store are not judged again."""
    done: dict[tuple[str, int, int], list[list[object]]] = {}
    if store is not None and store.exists():
        for line in store.read_text().splitlines():
            name, seeds, repetition, found = json.loads(line)
            done[name, seeds, repetition] = found
    counts: Counter[tuple[str, str, int, str]] = Counter()
    for job in jobs:
        for name, statement, seeds, verdict, number in done.get(job, []):
            counts[name, statement, seeds, verdict] += number
    missing = [job for job in jobs if job not in done]
    if not missing:
        return counts
    with ExitStack() as stack:
        pool = stack.enter_context(ProcessPoolExecutor(processes))
        file = None if store is None else stack.enter_context(store.open("a"))
        results = pool.map(counted, *zip(*missing, strict=True), chunksize=10)
        for job, found in zip(missing, results, strict=True):
            counts += found
            if file is not None:
                rows = [[*key, number] for key, number in found.items()]
                print(json.dumps([*job, rows]), file=file, flush=True)
    return counts


def _verdicts(
    counts: Counter[tuple[str, str, int, str]], name: str, statement: str, seeds: int
) -> list[int]:
    return [
        counts[name, statement, seeds, verdict]
        for verdict in ("confirmed", "refuted", "inconclusive")
    ]


def _cell(counts: Counter[tuple[str, str, int, str]], name: str, statement: str, seeds: int) -> str:
    found = _verdicts(counts, name, statement, seeds)
    return " / ".join(map(str, found)) if any(found) else ""


def _share(counts: Counter[tuple[str, str, int, str]], statement: str, seeds: int) -> str:
    every = np.sum([_verdicts(counts, name, statement, seeds) for name in LAWS], axis=0)
    return (
        f"{every[0]} of {every.sum()} confirmed, {every[:2].sum() / every.sum():.0%} decided"
        if every.sum()
        else ""
    )


if __name__ == "__main__":
    main()
