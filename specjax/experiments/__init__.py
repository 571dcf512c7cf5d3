"""The experiments, one module per result of a paper, loaded by name."""

from importlib import import_module

from specjax.experiments.contract import AnyExperiment

MODULES = {
    "table-c7": "specjax.experiments.outer_product.table_c7",
    "figure-2": "specjax.experiments.outer_product.figure_2",
    "matrix-factorization": "specjax.experiments.outer_product.matrix_factorization",
    "deep-linear": "specjax.experiments.outer_product.deep_linear",
    "relu-off-diagonal": "specjax.experiments.outer_product.relu_off_diagonal",
    "dominance": "specjax.experiments.outer_product.dominance",
    "row-normalization": "specjax.experiments.outer_product.row_normalization",
    "figure-1": "specjax.experiments.outer_product.figure_1",
    "claims": "specjax.experiments.claims.experiment",
    "orthogonalizer-error": "specjax.experiments.orthogonalizer.error",
}
"""Where each experiment lives; its module has the experiment as `EXPERIMENT`."""


def names() -> list[str]:
    """The names of all experiments, in the order of the report."""
    return list(MODULES)


def load(name: str) -> AnyExperiment:
    """The experiment called `name`; raises ValueError with the known names if there is none."""
    if name not in MODULES:
        raise ValueError(f"There is no experiment {name!r}; there are {', '.join(MODULES)}.")
    experiment: AnyExperiment = import_module(MODULES[name]).EXPERIMENT
    return experiment
