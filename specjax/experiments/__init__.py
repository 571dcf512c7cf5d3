"""The experiments, one module per result of a paper, loaded by name."""

import sys
from functools import cache
from importlib import import_module, util
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

# The names alone must not import JAX: the command line sets its environment first.
if TYPE_CHECKING:
    from specjax import lab

MODULES = {
    "table-c7": "specjax.experiments.outer_product.table_c7",
    "figure-2": "specjax.experiments.outer_product.figure_2",
    "matrix-factorization": "specjax.experiments.outer_product.matrix_factorization",
    "deep-linear": "specjax.experiments.outer_product.deep_linear",
    "relu-off-diagonal": "specjax.experiments.outer_product.relu_off_diagonal",
    "dominance": "specjax.experiments.outer_product.dominance",
    "target": "specjax.experiments.outer_product.target",
    "row-normalization": "specjax.experiments.outer_product.row_normalization",
    "figure-1": "specjax.experiments.outer_product.figure_1",
    "outer-product-lemmas": "specjax.experiments.outer_product.lemmas",
    "outer-product-identities": "specjax.experiments.outer_product.identities",
    "after-initialization": "specjax.experiments.outer_product.after_initialization",
    "claims-polar": "specjax.experiments.claims.polar_algebra",
    "claims-integrability": "specjax.experiments.claims.integrability",
    "claims-momentum": "specjax.experiments.claims.momentum",
    "claims-expectation": "specjax.experiments.claims.expectation",
    "claims-limits": "specjax.experiments.claims.limits",
    "claims-bias": "specjax.experiments.claims.bias",
    "claims-curvature": "specjax.experiments.claims.curvature",
    "claims-newton": "specjax.experiments.claims.newton",
    "claims-reparametrization": "specjax.experiments.claims.reparametrization",
    "scalar-sequences": "specjax.experiments.preconditioning.scalar_sequences",
    "decoupling": "specjax.experiments.preconditioning.decoupling",
    "muon-convergence": "specjax.experiments.preconditioning.theorems",
    "condition-number": "specjax.experiments.preconditioning.condition_number",
    "sign-gradient-lower-bounds": "specjax.experiments.preconditioning.sign_gradient",
    "convergence-curves": "specjax.experiments.preconditioning.curves",
    "preconditioning-lemmas": "specjax.experiments.preconditioning.lemmas",
    "preconditioning-bounds": "specjax.experiments.preconditioning.bounds",
    "preconditioner-maps": "specjax.experiments.preconditioning.preconditioners",
    "orthogonalizer-error": "specjax.experiments.orthogonalizer.error",
    "one-step-comparison": "specjax.experiments.spectral_criterion.one_step",
    "figures-3-and-11": "specjax.experiments.spectral_criterion.figures_3_11",
    "mean-strength": "specjax.experiments.spectral_criterion.mean_strength",
    "relu-features": "specjax.experiments.spectral_criterion.arc_cosine",
    "gradient-rank-window": "specjax.experiments.spectral_criterion.random_features",
    "figures-14-and-15": "specjax.experiments.spectral_criterion.figures_14_15",
    "stable-ranks": "specjax.experiments.spectral_criterion.stable_ranks",
    "activations": "specjax.experiments.spectral_criterion.activations",
    "decoder-block": "specjax.experiments.spectral_criterion.decoder_block",
    "layered-hessian": "specjax.experiments.spectral_criterion.layered",
    "sparse-regression": "specjax.experiments.spectral_criterion.sparse_regression",
    "rank-switch": "specjax.experiments.spectral_criterion.rank_switch",
    "spectral-lemmas": "specjax.experiments.spectral_criterion.lemmas",
    "gpt-ablation": "specjax.experiments.spectral_criterion.gpt_ablation",
    "gpt-telemetry": "specjax.experiments.spectral_criterion.gpt_telemetry",
    "gpt-snapshot": "specjax.experiments.spectral_criterion.gpt_snapshot",
    "memory-one-step": "specjax.experiments.associative_memory.one_step",
    "memory-multi-step": "specjax.experiments.associative_memory.multi_step",
    "memory-thresholded": "specjax.experiments.associative_memory.thresholded",
    "memory-minibatch": "specjax.experiments.associative_memory.minibatch",
    "memory-minibatch-steps": "specjax.experiments.associative_memory.minibatch_steps",
    "memory-anisotropy": "specjax.experiments.associative_memory.anisotropy",
    "memory-lambda": "specjax.experiments.associative_memory.resolution",
    "memory-logits": "specjax.experiments.associative_memory.logits",
    "memory-lemmas": "specjax.experiments.associative_memory.lemmas",
    "memory-bounds": "specjax.experiments.associative_memory.bounds",
    "recall-transformer": "specjax.experiments.associative_memory.recall_transformer",
    "update-exponents": "specjax.experiments.scaling.updates",
    "rate-transfer": "specjax.experiments.scaling.rates",
    "rate-drift": "specjax.experiments.scaling.drift",
    "field-grid": "specjax.experiments.field.grid",
    "field-momentum": "specjax.experiments.field.momentum",
    "field-margin": "specjax.experiments.field.margin",
    "field-balance": "specjax.experiments.field.balance",
    "field-rate": "specjax.experiments.field.rate",
    "field-stability": "specjax.experiments.field.stability",
    "field-schedule": "specjax.experiments.field.schedule",
    "field-modes": "specjax.experiments.field.modes",
    "field-batch": "specjax.experiments.field.batch",
    "field-phases": "specjax.experiments.field.phases",
    "field-quantiles": "specjax.experiments.field.quantiles",
    "field-spectra": "specjax.experiments.field.spectra",
    "field-line-search": "specjax.experiments.field.line_search",
    "field-exponents": "specjax.experiments.field.exponents",
    "field-exponent-numbers": "specjax.experiments.field.exponent_numbers",
    "field-exponent-muon": "specjax.experiments.field.exponent_muon",
    "field-edge": "specjax.experiments.field.edge_of_stability",
    "field-edge-fixed": "specjax.experiments.field.edge_of_stability:FIXED",
    "target-erasure": "specjax.experiments.beyond.target_erasure",
    "best-filter": "specjax.experiments.beyond.best_filter",
    "best-filter-training": "specjax.experiments.beyond.filter_training",
    "what-decides": "specjax.experiments.beyond.what_decides.experiment",
    "spectral-race": "specjax.experiments.beyond.spectral_race.claim",
    "polar-signal": "specjax.experiments.beyond.polar_signal",
    "polar-rank": "specjax.experiments.beyond.polar_rank",
    "batch-polar": "specjax.experiments.beyond.batch_polar",
    "hard-rank": "specjax.experiments.beyond.hard_rank",
    "capacity-constants": "specjax.experiments.beyond.capacity_constants",
}
"""The module of each built-in experiment, which has it as `EXPERIMENT` or the name after `:`."""
SUBMITTED = Path(__file__).parent / "submitted"
"""A folder for each submitted claim, in the form of `specjax.lab.claim`; none is in a table."""
GROUP = "specjax.experiments"
"""Entry points of this group add the experiments of other packages: `name = "package.module"`, or
`"package.module:NAME"` where the module has it by another name than `EXPERIMENT`.
"""


class RegistrationError(ValueError):
    """An experiment of another package has a name that is taken, or is not the registered one."""


def names() -> list[str]:
    """The names of all experiments, in the order of the report: built-in ones first.

    Raises:
        RegistrationError: another package registers a name that is taken.
    """
    return list(_modules())


def load(name: str) -> "lab.Experiment[Any]":
    """The experiment called `name`; raises ValueError with the known names for another."""
    modules = _modules()
    if name not in modules:
        raise ValueError(f"There is no experiment {name!r}; there are {', '.join(modules)}.")
    module, _, attribute = modules[name].partition(":")
    experiment: lab.Experiment[Any] = getattr(import_module(module), attribute or "EXPERIMENT")
    if experiment.name != name:
        raise RegistrationError(
            f"The experiment of {modules[name]} is called {experiment.name!r}; register it by that"
            f" name, not as {name!r}."
        )
    return experiment


def load_folder(folder: Path) -> "lab.Experiment[Any]":
    """The experiment of a folder with `claim.toml` and `claim.py`, which is registered by its name.

    Raises:
        ValueError: the folder lacks a file, or its name is that of another experiment; a refusal of
            `specjax.lab.read_claim`.
    """
    file = folder / "claim.py"
    if not file.is_file():
        raise ValueError(
            f"{folder} has no claim.py; `specjax check --template FOLDER` writes a folder to begin"
            " with."
        )
    module_name = f"{__name__}.claim_{folder.resolve().name}"
    spec = util.spec_from_file_location(module_name, file)
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    sys.modules[module_name] = module
    spec.loader.exec_module(module)
    experiment: lab.Experiment[Any] = module.EXPERIMENT
    if folder.resolve().parent != SUBMITTED:
        known = MODULES.get(experiment.name, module_name)
        if known != module_name or experiment.name in _submitted():
            raise ValueError(
                f"There is an experiment {experiment.name!r} already; give the folder another name."
            )
        MODULES[experiment.name] = module_name
    return experiment


def load_all() -> "dict[str, lab.Experiment[Any]]":
    """All experiments by name, in the order of the report."""
    return {name: load(name) for name in names()}


def _submitted() -> dict[str, str]:
    """The modules of the submitted claims by name."""
    return {
        file.parent.name.replace("_", "-"): f"{__name__}.submitted.{file.parent.name}.claim"
        for file in sorted(SUBMITTED.glob("*/claim.toml"))
    }


@cache
def _entry_points() -> tuple[EntryPoint, ...]:
    # Cached, since reading the metadata of all packages takes tens of milliseconds.
    return tuple(entry_points(group=GROUP))


def _modules() -> dict[str, str]:
    """The modules of all experiments by name."""
    modules = {**MODULES, **_submitted()}
    for point in _entry_points():
        if point.name in modules:
            raise RegistrationError(
                f"There is an experiment {point.name!r} already, in {modules[point.name]};"
                f" register that of {point.value} by another name."
            )
        modules[point.name] = point.value
    return modules
