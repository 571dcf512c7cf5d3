"""`specjax` with one experiment of many small blocks, to be killed: `python killed_run.py LOG run
toy-blocks --out DIR`.

Every seed that is computed leaves a byte in LOG, by a callback on the host: one that is read from a
store leaves none.
"""

# ruff: noqa: ARG001, ARG005 (statements and their rivals take the configuration, whether they need it or not)

import sys
import time
import types

import jax
import numpy as np

from specjax import experiments, lab, sizes, sweep
from specjax.cli import main
from specjax.sweep import _executor

_executor.BLOCK_SECONDS = 1e-9  # every call is a block of its own
WIDTHS, SEEDS, CHUNK = (3, 6), 40, 4
LOG, SECONDS = sys.argv[1], 0.05


class Config(lab.Config):
    seeds: int = lab.config.seeds(SEEDS)


def counted(x):
    with open(LOG, "ab") as log:
        log.write(b"." * x.size)
    time.sleep(SECONDS)
    return np.asarray(x)


def run(config, key):
    def measure(key, d):
        x = sizes.normal(key, (d,)).sum()
        return {
            "sum": jax.pure_callback(
                counted, jax.ShapeDtypeStruct((), x.dtype), x, vmap_method="expand_dims"
            )
        }

    def swept(name):
        over = {"d": sweep.widths(*WIDTHS)}
        return sweep.run(
            measure,
            over,
            num_seeds=config.seeds,
            key=sizes.stream(key, name),
            plan="exact",
            chunk=CHUNK,
        )

    return {"one": swept("one"), "other": swept("other")}


@lab.statement("zero", "The sum has mean zero.", rivals={"one": lambda config, data: 1.0})
def zero(config, data):
    return lab.equals(data["one"]["sum"], 0.0)


EXPERIMENT = lab.Experiment(
    "toy-blocks",
    lab.ledger.Ledger.from_conjectures("toy", zero="The sum has mean zero."),
    title="A toy of blocks",
    summary="Sums of normal numbers.",
    config=Config,
    measure=run,
    statements=(zero,),
)

if __name__ == "__main__":
    module = types.ModuleType("toys")
    module.EXPERIMENT = EXPERIMENT
    sys.modules["toys"] = module
    experiments.MODULES.clear()
    experiments.MODULES["toy-blocks"] = "toys"
    sys.exit(main(sys.argv[2:]))
