"""Random wrong command lines and wrong calls of public functions: whatever is refused must be
refused in one sentence, and at once.

    python scripts/maintain/odd_calls.py [--commands 1000] [--calls 1000] [--seed 0] [--only REGEX]

A call is a right one with an odd value in the place of one argument. Fine is a result, or a
ValueError, a TypeError or an exit with one sentence of ours; anything else is printed, as is what
takes more than five seconds, and then the exit code is 1. Command lines that are accepted compute
nothing.
"""

import argparse
import contextlib
import io
import itertools
import os
import random
import re
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from types import FrameType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import xarray as xr

from specjax import cli, experiments, fits, lab, moments, optim, report, spectral, sweep, training
from specjax.lab.flags import flags

PATIENCE = 5.0
"""Seconds after which an answer counts as a silence; what is still silent after six times as many
is stopped.
"""

ODD: dict[str, Any] = {
    "None": None,
    "text": "x",
    "empty text": "",
    "list": [1.0, 2.0],
    "ragged list": [[1.0], [1.0, 2.0]],
    "fraction": 2.5,
    "NaN": float("nan"),
    "infinity": float("inf"),
    "negative": -1,
    "zero": 0,
    "huge": 10**30,
    "immense": 10**400,
    "true": True,
    "object": object(),
    "dict": {"a": 1},
    "function": lambda *_, **__: None,
    "key": jax.random.key(1),
    "vector": np.ones(3),
    "empty matrix": np.zeros((0, 3)),
    "integers": np.ones((3, 3), int),
    "complex matrix": np.ones((3, 3), complex),
    "NaN matrix": np.full((3, 3), np.nan),
    "texts": np.array(["a", "b"]),
}

KEY = jax.random.key(0)
SQUARE = jnp.asarray(np.random.default_rng(0).standard_normal((3, 3)), jnp.float32)
SIZES = [4, 8, 16, 32, 64, 128]
_NOISE = 1 + 0.01 * np.random.default_rng(1).standard_normal((6, 20))
DRAWS = xr.DataArray(
    np.array(SIZES)[:, None] ** 0.5 * _NOISE,
    {"d": SIZES, "seed": range(20)},
    ("d", "seed"),
    name="y",
)
VALLEY = (DRAWS / DRAWS * _NOISE) * (
    1 + (xr.DataArray(np.arange(5) - 2.1, {"rate": 0.1 * 2.0 ** np.arange(5)}, ("rate",))) ** 2
)
DATA = DRAWS.to_dataset()
TEXT = training.text.load().validation
WORD = moments.gaussian("G", "m", "n")
BATCH = {"x": jnp.ones((4, 3))}
PARAMS = {"w": SQUARE, "v": SQUARE}
UPDATES = {"w": SQUARE, "v": SQUARE}


def loss(params: Any, batch: Any) -> Any:
    return jnp.mean((batch["x"] @ params["w"] @ params["v"]) ** 2)


def measure(key: Any, d: Any) -> dict[str, Any]:
    return {"y": jax.random.normal(key) * d}


SWEPT = sweep.run(
    measure, {"d": sweep.values(1.0, 2.0)}, num_seeds=4, key=KEY, reduce="moments", progress=False
)


@dataclass(frozen=True)
class Own:
    """An argument that a function of the user's reads, which may refuse it in its own way: nothing
    odd stands in its place.
    """

    value: Any


@dataclass(frozen=True)
class Call:
    """A right call of a public function."""

    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    own: dict[str, Any] = field(default_factory=dict)


def call(function: Callable[..., Any], *args: Any, **options: Any) -> Call:
    own = {name: value.value for name, value in options.items() if isinstance(value, Own)}
    return Call(
        function, args, {name: value for name, value in options.items() if name not in own}, own
    )


def stepped(make: Callable[..., optax.GradientTransformation]) -> Callable[..., Any]:
    """A transformation as it is used: made, started and asked for one update."""

    @wraps(make)
    def run(*args: Any, params: Any = PARAMS, updates: Any = UPDATES, **options: Any) -> Any:
        made = make(*args, **options)
        return made.update(updates, made.init(params), params)

    return run


def made_and_read(make: Callable[..., Any]) -> Callable[..., Any]:
    """A schedule as it is used: made, and read at a step."""
    return wraps(make)(lambda *args, **options: make(*args, **options)(jnp.asarray(3)))


def relation(make: Callable[..., lab.Relation]) -> Callable[..., Any]:
    """A relation as it is used: made, and judged."""
    return wraps(make)(lambda *args, **options: make(*args, **options).judge({}))


def stated(*args: Any, **options: Any) -> Any:
    """A statement, as its decorator makes it."""
    return lab.statement(*args, **options)(lambda *_: None)


_SQUARES = [
    spectral.spectral_norm,
    spectral.nuclear_norm,
    spectral.stable_rank,
    spectral.nuclear_rank,
    spectral.effective_rank,
    spectral.entropy_rank,
    spectral.normalize_rows,
    spectral.normalize_columns,
    spectral.row_metric,
    spectral.row_dominance,
    spectral.dominance.off_diagonal_energy,
    spectral.dominance.off_block_energy,
    spectral.dominance.off_diagonal,
]
_OF_SIZES = [
    spectral.dominance.diagonal_mean,
    spectral.dominance.off_diagonal_mean,
    spectral.dominance_ratio,
]
_FITS = [fits.fit_power_law, fits.fit_offset, fits.fit_logarithm]
_ENDS = [lab.vanishes, lab.settles, lab.saturates, lab.grows]
_MATRIX_OPTIMIZERS = [optim.normalize_rows, optim.normalize_columns, optim.scale_by_factor_gram]

CALLS: dict[str, list[Call]] = {
    "spectral": [
        *(call(f, SQUARE) for f in _SQUARES),
        *(call(f, SQUARE, 3) for f in _OF_SIZES),
        call(spectral.dominance.off_diagonal_coefficient, SQUARE, SQUARE),
        call(spectral.dominance.traceless_cosine, SQUARE, SQUARE),
        call(spectral.direction_error, SQUARE, SQUARE + 1),
        call(spectral.schatten_norm, SQUARE, 3.0),
        call(spectral.polar, SQUARE, spectral.NewtonSchulz()),
        call(spectral.polar_error.factor_error, SQUARE, SQUARE),
        call(spectral.polar_error.method_error, SQUARE, spectral.NewtonSchulz(), spectral.SVD()),
        call(spectral.spectral_map, SQUARE, jnp.tanh, 1e-3),
        call(spectral.spectral_power, SQUARE, 0.5, 1e-3),
        call(spectral.stabilized_sign, SQUARE, 0.5),
        call(spectral.inverse_root, SQUARE @ SQUARE.T, 2, 0.1, 1e-3),
        call(spectral.power_iteration, SQUARE, KEY, steps=3),
        call(spectral.estimate_stable_rank, SQUARE, KEY, steps=2),
        call(spectral.estimate_ranks, SQUARE, KEY, steps=2, probes=2, directions=1),
        call(spectral.SVD, 1e-3),
        call(spectral.QDWH, 1e-3),
        call(spectral.Newton, 5),
        call(spectral.NewtonSchulz, 2, spectral.polynomials.MUON, True, 1, jnp.bfloat16, "aol"),
        call(
            spectral.PolarExpress,
            3,
            lower=1e-2,
            safety=1.01,
            cushion=0.02,
            gram=True,
            restart=1,
            operands=jnp.bfloat16,
        ),
        call(spectral.Tikhonov, 0.5),
        call(spectral.polynomials.band, (spectral.polynomials.MUON,), 0.1, 1.0),
        call(spectral.polynomials.best_quintic, 0.1, 1.0),
        call(spectral.polynomials.best_composition, 3, 0.1, 1.01, 0.02),
    ],
    "moments": [
        call(moments.gaussian, "G", "m", 3, variance=2),
        call(moments.constant, "A", "m", 3, symmetric=False),
        call(moments.haar, "Q", "n"),
        call(moments.identity, "n"),
        call(moments.ones, "n", 3),
        call(moments.symbol, "n"),
        call(moments.trace, WORD @ WORD.T),
        call(moments.diagonal, WORD @ WORD.T),
        call(moments.squared_norm, WORD),
        call(moments.matrix_power, WORD @ WORD.T, 2),
        call(moments.expectation, WORD @ WORD.T, over="G", most=100),
        call(moments.variance, moments.squared_norm(WORD), over="G", most=100),
        call(moments.total_variance, WORD, over="G", most=100),
        call(
            moments.covariance,
            moments.squared_norm(WORD),
            moments.squared_norm(WORD),
            over="G",
            most=100,
        ),
        call(moments.haar_expectation, moments.haar("Q", "n") @ moments.haar("Q", "n").T, most=4),
        call(moments.haar_variance, moments.trace(moments.haar("Q", "n")), most=4),
        call(moments.haar_covariance, moments.haar("Q", "n"), moments.haar("Q", "n"), most=4),
        call(
            moments.orders,
            moments.expectation(moments.squared_norm(WORD)),
            "m",
            n=moments.symbol("m"),
        ),
        call(moments.hermite, jnp.tanh, 3, variance=1.0, kinks=(0.0,)),
        call(lambda **sizes: moments.expectation(moments.squared_norm(WORD))(**sizes), m=2, n=3),
        call(lambda rho: moments.hermite(jnp.tanh, 3).product(rho), 0.5),
    ],
    "sweep": [
        call(sweep.widths, 4, 8),
        call(sweep.values, 0.1, 0.2),
        call(sweep.choices, 2, 4),
        call(sweep.zipped, a=sweep.widths(4, 8), b=sweep.values(1, 2)),
        *(
            call(f, SWEPT)
            for f in (sweep.explain, sweep.is_explained, sweep.without_failed, sweep.total)
        ),
        call(sweep.mean_and_stderr, DRAWS),
        call(sweep.labelled, SWEPT, outputs=["y"]),
        call(sweep.open_store, "missing"),
        call(
            sweep.run,
            measure,
            {"d": sweep.values(1.0, 2.0)},
            num_seeds=2,
            key=KEY,
            plan="exact",
            chunk=2,
            memory="1GiB",
            reduce="moments",
            check_padding=True,
            store=None,
            progress=False,
        ),
    ],
    "lab": [
        call(lab.config.integer, 3, least=1, most=10, help="h"),
        call(lab.config.number, 3.0, above=0, below=10, least=1, help="h"),
        call(lab.config.numbers, 1.0, 2.0, above=0, below=10, count=2, help="h"),
        call(lab.config.sizes, 1, 2, least=1, most=10, points=2, count=2, help="h"),
        call(lab.config.ascending, 1, 2, least=1, points=2, first=1, help="h"),
        call(lab.config.grid, 1, 2, 3, count=3, help="h"),
        call(lab.config.seeds, 10, least=2, help="h"),
        call(lab.config.root_seed, 1, help="h"),
        call(lab.config.text, "a", help="h"),
        call(lab.config.switch, True, help="h"),
        *(call(relation(f), DRAWS, 1.0, "one", by="mean") for f in (lab.above, lab.below)),
        *(call(relation(f), DRAWS, "d", by="mean") for f in _ENDS),
        call(relation(lab.bounded), DRAWS, "d", slower_than=0.1, by="mean"),
        call(relation(lab.scales_as), DRAWS, "d", 0.5, fit="power law", by="mean", resolution=0.1),
        call(relation(lab.near), DRAWS, 1.0, 0.1, "a tenth", by="mean"),
        call(relation(lab.ahead), DRAWS, DRAWS - 1, least=0.5, by="mean"),
        call(relation(lab.equals), DRAWS, 1.0, by="mean", resolution=0.1),
        call(relation(lab.inequality), DRAWS, DRAWS + 1, slack=0.1, rounding=0.0),
        call(relation(lab.zero_error), abs(DRAWS), tolerance=1e-3),
        call(relation(lab.fraction), DRAWS > 1, more_than=0.5),
        call(relation(lab.within_grid), lab.above(DRAWS, 1.0, "one"), xr.DataArray([1, 2]), 4),
        call(lab.controls.reverse, DRAWS, "d"),
        call(lab.controls.at_labels, DRAWS, "d", {4: 8}),
        call(lab.controls.at_places, DRAWS, "d", [0, 1, 1, 2, 3, 4]),
        call(
            lambda first, second, of: lab.controls.exchanging(first, second, of=of)(
                None, {"a": DATA.assign(z=DRAWS)}
            ),
            "y",
            "z",
            of="a",
        ),
        call(lambda target, source: lab.controls.replacing(target, source)(None, DATA), "y", 2.0),
        call(lambda change: lab.controls.changing(change)(None, DATA), lambda data: data),
        call(lab.closed_form, jnp.sqrt, DRAWS),
        call(lab.ledger.read_ledger, Path("missing.toml"), "paper"),
        call(stated, "row", "It is.", name="a-b", rivals={"x": 1.0}),
        call(lab.table.table_by_size, "title", {"a": DRAWS}, "d", False),
        call(lambda **fields: lab.Config(**fields), seed=1),
    ],
    "fits": [
        *(call(f, DRAWS, "d", by="mean", resamples=100, level=0.9, seed=1) for f in _FITS),
        call(fits.fit_power_law, DRAWS, "d", subleading=True, resamples=100),
        call(fits.asymptotic_exponent, DRAWS, "d", by="mean"),
        call(fits.asymptotics, DRAWS, "d", significance=0.05, by="mean"),
        call(fits.choose_model, DRAWS, "d", significance=0.05, by="mean"),
        call(fits.drop_smallest, DRAWS, "d", by="mean"),
        call(
            fits.extrapolate, DRAWS, "d", significance=0.05, slowest=0.5, tolerance=3e-4, by="mean"
        ),
        call(fits.optimum, VALLEY, "rate", "d"),
        call(fits.require_real, DRAWS),
        call(fits.require_sizes, DRAWS, "d"),
        call(fits.log_slopes, np.log(DRAWS), "d"),
        call(fits.jackknife, DRAWS, lambda means: means),
        call(fits.draw_fit, fits.fit_power_law(DRAWS, "d", resamples=100)),
    ],
    "training": [
        call(training.measure_ranks, loss, params=Own(PARAMS), batch=Own(BATCH)),
        call(
            training.train,
            loss,
            optimizer=optax.sgd(0.1),
            batch=lambda _: BATCH,
            steps=2,
            every=1,
            record=lambda _, step: step,
            microbatches=1,
            params=Own(PARAMS),
        ),
        call(
            training.train_steps,
            lambda state, _: (state, 0.0),
            jnp.zeros(2),
            itertools.repeat(1.0),
            steps=2,
            every=1,
            record=lambda _, step: step,
        ),
        call(
            training.train_many,
            loss,
            optimizers=[optax.sgd(0.1)],
            batch=Own(lambda _: BATCH),
            lengths=[2],
            record=lambda params: params["w"],
            params=Own(PARAMS),
        ),
        call(training.text.load, None, held_out=0.1),
        call(training.text.sample_batch, jnp.asarray(TEXT), KEY, 2, 4),
        call(training.text.stretches, TEXT, 2, 4),
        call(training.text.unigram_entropy, TEXT),
    ],
    "optim": [
        *(call(stepped(make), params=PARAMS, updates=UPDATES) for make in _MATRIX_OPTIMIZERS),
        call(
            stepped(optim.muon),
            0.02,
            beta=0.9,
            convention="ema",
            nesterov=True,
            bias_correction=False,
            params=PARAMS,
            updates=UPDATES,
        ),
        call(stepped(optim.orthogonalize), spectral.SVD(), "none", adaptive=True),
        call(stepped(optim.spectral_descent), 1.0, spectral.SVD()),
        call(
            stepped(optim.momentum),
            0.9,
            "ema",
            nesterov=True,
            bias_correction=True,
            mu_dtype=jnp.bfloat16,
            key=KEY,
        ),
        call(stepped(optim.lift_to_floor), 0.3, "output"),
        call(stepped(optim.scale_by_neuron_moment), 0.9, "output"),
        call(stepped(optim.scale_by_shampoo), 0.9, order=4, damping=0.1, every=1),
        call(stepped(optim.scale_by_soap), 0.9, 0.9, eps=1e-8, every=2),
        call(stepped(optim.schatten_direction), 4.0, "none"),
        call(stepped(optim.clip_singular_values), 1.0, "hard", "none"),
        call(stepped(optim.clip_weights), 1.0, "hard", "none"),
        call(stepped(optim.hyperball), 0.1),
        call(stepped(optim.mars_correction), 0.025, 0.95, exact=False),
        call(stepped(optim.add_cautious_decay), 0.1, None),
        call(optim.rank_switch, optim.jordan_muon(0.1), optax.sgd(0.1), spectral.SVD()),
        call(made_and_read(optim.geometric), 0.1, 0.9),
        call(made_and_read(optim.random_geometric), KEY, 0.1, 0.2, 0.9, each_step=True),
        call(optim.decay_on_plateau, 0.5, 10),
        call(optim.routing, optim.jordan_muon(0.1), PARAMS),
        call(optim.Interleaved, (1, 2), 3),
    ],
}

TYPED = [
    "",
    "0",
    "-1",
    "1",
    "2",
    "1e3",
    "1e300",
    "99999999999999999999",
    "2147483648",
    "9" * 5000,
    "nan",
    "inf",
    "x",
    "ü",
    ",",
    "1,2",
    "2,1",
    "4,8,x",
    "true",
    "[1]",
    "None",
    "../x",
    "a b",
    "%s",
    "{}",
    "--",
    "smoke",
    "0x10",
    "1_000",
    "٣",
    "\x00",
    "\n",
]
WORDS = [
    "list",
    "run",
    "scaling",
    "reproduce",
    "judge",
    "attack",
    "ledger",
    "help",
    "",
    "--help",
    "--version",
    "-h",
    "--scale",
    "--out",
]


class Silence(BaseException):
    """It took too long."""


def problem(function: Callable[[], Any]) -> str | None:
    """What is wrong with how a call was answered; None if nothing is."""
    wall, busy = time.perf_counter(), time.process_time()
    signal.alarm(int(6 * PATIENCE))
    found = None
    try:
        function()
    except Silence:
        found = "no answer"
    except SystemExit as error:
        found = None if error.code in (0, None) else f"exit {error.code}"
    except (ValueError, TypeError) as error:
        # JAX puts a note of its own behind a message.
        said = str(error).partition("\n--------------------\nFor simplicity")[0]
        found = (
            None
            if "\n" not in said and said.endswith(".")
            else f"{type(error).__name__}: {said.splitlines()[:1]}"
        )
    except Exception as error:
        found = f"{type(error).__name__}: {str(error).splitlines()[:1]}"
    finally:
        signal.alarm(0)
    # On a machine that others use as well, neither clock alone says how long a user would wait.
    seconds = min(time.perf_counter() - wall, time.process_time() - busy)
    return f"{seconds:.0f} s of silence" if seconds > PATIENCE and found is None else found


def odd_calls(
    count: int, rng: random.Random, only: str = ""
) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Up to `count` different calls, each of a right one with an odd value in the place of one
    argument.
    """
    places = [
        (f"{room}, call {number} of {right.function.__name__}", right, place, name)
        for room, calls in CALLS.items()
        for number, right in enumerate(calls)
        for place in (*range(len(right.args)), *right.options)
        for name in ODD
        if re.search(only, f"{room}.{right.function.__name__}")
    ]
    for what, right, place, name in rng.sample(places, min(count, len(places))):
        args, options = [*right.args], dict(right.options)
        if isinstance(place, int):
            args[place] = ODD[name]
        else:
            options[place] = ODD[name]
        yield (
            f"{what}: {name} as {place}",
            lambda f=right.function, a=args, o=options | right.own: f(*a, **o),
        )


def odd_lines(count: int, rng: random.Random) -> Iterator[list[str]]:
    """Random command lines: most of them a run of an experiment with odd values of its flags."""
    names = experiments.names()
    for _ in range(count):
        command = rng.choice(["run"] * 8 + ["scaling", *WORDS])
        line = [command]
        if command == "run":
            name = rng.choice(names)
            line.append(
                name if rng.random() < 0.95 else rng.choice([name[:-1], name.upper(), *TYPED])
            )
            options = [flag.option for flag in flags(experiments.load(name).at("smoke"))]
        else:
            options = [
                "--model",
                "--optimizer",
                "--only",
                "--jobs",
                "--continue",
                "--widths",
                "--rates",
                "--steps",
                "--seeds",
            ]
        for _ in range(rng.choice([0, 1, 1, 1, 2])):
            option, value = (
                rng.choice([*options, "--scale", "--out", "--explain"]),
                rng.choice(TYPED),
            )
            line += rng.choice([[option, value], [f"{option}={value}"], [option], [value]])
        if rng.random() < 0.7:
            line += ["--scale", "smoke"]
        yield line


def typed(line: list[str]) -> Callable[[], None]:
    """A command line, given in this process: its exit code and what it prints to standard error are
    its answer.
    """

    def run() -> None:
        said = io.StringIO()
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            code = cli.main(line)
        lines = said.getvalue().splitlines()
        if code == 2 and (len(lines) != 1 or not lines[0].startswith("specjax: ")):
            raise RuntimeError(f"{len(lines)} lines: {lines[:1]}")

    return run


@contextlib.contextmanager
def nothing_is_computed() -> Iterator[None]:
    """Within it, a run that the command line accepts ends before it begins, in an empty folder."""

    def accepted(*_: Any, **__: Any) -> Any:
        raise report.Refused("This would run.")

    from specjax.report import runner

    here = os.getcwd()
    places = [
        (report, "produce", accepted),
        (lab.Experiment, "run", _refused),
        (runner, "attempt_all", lambda *_, **__: iter(())),
    ]
    kept = [getattr(where, name) for where, name, _ in places]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for where, name, instead in places:
            setattr(where, name, instead)
        try:
            yield
        finally:
            for (where, name, _), original in zip(places, kept, strict=True):
                setattr(where, name, original)
            os.chdir(here)


def _refused(*_: Any) -> Any:
    raise ValueError("This would run.")


def _stop(*_: int | FrameType | None) -> None:
    raise Silence


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--commands", type=int, default=1000)
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--only", default="", help="calls whose room.function has this regular expression"
    )
    given = parser.parse_args(argv)
    rng = random.Random(given.seed)
    before = signal.signal(signal.SIGALRM, _stop)
    try:
        with warnings.catch_warnings(), nothing_is_computed(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            for room, rights in CALLS.items():
                for right in (
                    rights
                ):  # what is compiled and loaded at a first call is not the odd value's fault
                    if given.calls and re.search(given.only, f"{room}.{right.function.__name__}"):
                        with contextlib.suppress(ValueError):
                            right.function(*right.args, **right.options, **right.own)
            lines = [
                (f"specjax {' '.join(line)[:200]!r}", typed(line))
                for line in odd_lines(given.commands, rng)
            ]
            calls = list(odd_calls(given.calls, rng, given.only))
            found = [
                (what, wrong)
                for what, run in [*lines, *calls]
                if (wrong := problem(run)) is not None
            ]
    finally:
        signal.signal(signal.SIGALRM, before)
    for what, wrong in found:
        print(f"{what}: {wrong}")
    print(
        f"{len(lines)} command lines and {len(calls)} calls, {len(found)} not answered by one"
        " sentence"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
