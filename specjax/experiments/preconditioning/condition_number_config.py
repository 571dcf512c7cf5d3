"""What the experiment on condition numbers runs: sizes, condition numbers, and which optimizer on which problem."""

from dataclasses import dataclass, field

import xarray as xr

from specjax.experiments.contract import Data
from specjax.experiments.preconditioning import runs
from specjax.experiments.preconditioning.validation import check_accuracy, check_count, check_kappas
from specjax.experiments.validation import check_root_seed
from specjax.theory.preconditioning.conditions import check_decay, check_ranks

FAST = frozenset({"muon", "muon-constant", "muon-plateau", "muon-momentum", "muon-newton-schulz", "scaled"})
"""Optimizers that run at the large condition numbers."""

PROBLEMS = {
    "factorization": "matrix factorization",
    "context": "in-context regression",
    "regression": "matrix regression",
}


KAPPAS = (
    "kappas",
    "slow_kappas",
    "entrywise_kappas",
    "context_kappas",
    "context_slow_kappas",
    "regression_kappas",
)
"""The fields with condition numbers."""


@dataclass(frozen=True)
class Config:
    """Sizes, condition numbers and optimizers; the same step sizes, accuracy and limit for all."""

    d: int = field(default=8, metadata={"help": "rows of the factor X"})
    r: int = field(default=3, metadata={"help": "rank of the target M"})
    k: int = field(default=3, metadata={"help": "columns of the factor X, from r"})
    start_scale: float = field(default=1e-4, metadata={"help": "scale of the factor's start"})
    context_d: int = field(default=6, metadata={"help": "columns of Q, and of W with half as many rows and one"})
    kappas: tuple[float, ...] = field(
        default=(1.0, 10.0, 100.0, 1e3, 1e4, 1e6), metadata={"help": "condition numbers of Muon and ScaledGD on M"}
    )
    slow_kappas: tuple[float, ...] = field(
        default=(1.0, 10.0, 20.0, 40.0, 80.0), metadata={"help": "those of gradient descent on M"}
    )
    entrywise_kappas: tuple[float, ...] = field(
        default=(1.0, 10.0, 30.0, 100.0, 1e3), metadata={"help": "those of SignGD and Adam on M"}
    )
    context_kappas: tuple[float, ...] = field(
        default=(1.0, 10.0, 100.0, 1e3, 1e4), metadata={"help": "condition numbers of Muon in context"}
    )
    context_slow_kappas: tuple[float, ...] = field(
        default=(1.0, 2.0, 3.0, 4.0, 6.0), metadata={"help": "those of the other optimizers in context"}
    )
    regression_kappas: tuple[float, ...] = field(
        default=(1.0, 10.0, 20.0, 50.0, 100.0), metadata={"help": "condition numbers of matrix regression"}
    )
    optimizers: tuple[str, ...] = field(
        default=("muon", "muon-momentum", "muon-newton-schulz", "gradient-descent", "sign", "adam", "scaled"),
        metadata={"help": f"which optimizers, of {', '.join(runs.OPTIMIZERS)}"},
    )
    accuracy: float = field(default=1e-8, metadata={"help": "error relative to the norm of the target"})
    rho: float = field(default=0.9, metadata={"help": "decay of Muon's random geometric schedule"})
    limit: int = field(default=4000, metadata={"help": "steps after which a run is given up"})
    seeds: int = field(default=10, metadata={"help": "problems and starts at each condition number"})
    seed: int = field(default=0, metadata={"help": "seed of all draws"})

    def __post_init__(self) -> None:
        check_ranks(self.d, self.k, self.r)
        for name in KAPPAS:
            _check_grid(name, getattr(self, name), least=2 if name == "context_slow_kappas" else 10)
        if unknown := sorted(set(self.optimizers) - set(runs.OPTIMIZERS)):
            raise ValueError(f"optimizers must be of {', '.join(runs.OPTIMIZERS)}, got {', '.join(unknown)}.")
        if missing := sorted({"muon", "gradient-descent"} - set(self.optimizers)):
            raise ValueError(
                f"optimizers must have muon and gradient-descent, to be compared, {missing[0]} is missing."
            )
        if not self.start_scale > 0:
            raise ValueError(
                f"start_scale must be positive, since X = 0 is a stationary point, got {self.start_scale}."
            )
        if self.context_d < 2:
            raise ValueError(f"context_d must be at least 2, for a condition number, got {self.context_d}.")
        if self.limit < 1:
            raise ValueError(f"limit must be at least 1 step, got {self.limit}.")
        check_accuracy(self.accuracy)
        check_decay(self.rho, 2 / 3)
        check_count("seeds", self.seeds, 10)
        check_root_seed(self.seed)


def _check_grid(name: str, kappas: tuple[float, ...], least: int) -> None:
    """Raises ValueError unless the condition numbers are 1, where gradient descent wins, and four or more that make a slope."""
    check_kappas(name, kappas, points=5)
    if kappas[0] != 1 or kappas[1] < least:
        raise ValueError(f"{name} needs 1 and then condition numbers from {least} up, for a slope, got {kappas}.")


def chosen(config: Config) -> dict[str, tuple[str, tuple[str, ...]]]:
    """By the field with their condition numbers: a problem, and the optimizers that run on it there.

    ScaledGD is for factorizations; matrix regression has Muon and gradient descent.
    """
    fast = tuple(name for name in config.optimizers if name in FAST)
    slow = tuple(name for name in config.optimizers if name not in FAST)
    groups = {
        "kappas": ("factorization", fast),
        "slow_kappas": ("factorization", ("gradient-descent",)),
        "entrywise_kappas": ("factorization", tuple(name for name in slow if name != "gradient-descent")),
        "context_kappas": ("context", tuple(name for name in fast if name not in ("scaled", "muon-plateau"))),
        "context_slow_kappas": ("context", slow),
        "regression_kappas": ("regression", ("muon-plateau", "gradient-descent")),
    }
    return {field: (problem, names) for field, (problem, names) in groups.items() if names}


def by_optimizer(config: Config, data: Data) -> Data:
    """The steps and arrivals of each optimizer on each problem, as "problem-optimizer"; they are measured by condition numbers."""
    return {
        f"{problem}-{name}": xr.Dataset({what: data[field][f"{name}.{what}"] for what in ("steps", "reached")})
        for field, (problem, names) in chosen(config).items()
        for name in names
    }
