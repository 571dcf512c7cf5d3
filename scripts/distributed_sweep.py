"""One sweep on all devices of all processes: a Slurm job, a Kubernetes job, a TPU pod, or processes
started by hand.

Every process runs this same script. `jax.distributed.initialize()` finds the others by itself on
Slurm, on Kubernetes and on Cloud TPU; elsewhere it is told by `--coordinator`, `--processes` and
`--index`. The seeds are shared among all devices, the first process writes the store, and a job
that is cut off continues from it when it is started again.

On Slurm, by hand (and the same with --index 1), without other processes, and as one task of a job
array:

    srun python scripts/distributed_sweep.py --store /shared/relu
    python scripts/distributed_sweep.py --store relu --coordinator localhost:1234 \
        --processes 2 --index 0
    python scripts/distributed_sweep.py --store relu --single
    python scripts/distributed_sweep.py --store relu/16 --single --widths 16
"""

import argparse
import logging
from pathlib import Path

import jax
import jax.numpy as jnp
from jaxtyping import Array

from specjax import fits, sweep
from specjax.models import relu_network
from specjax.sizes import AnySize

D0, D2 = 25, 12
FIT = 3  # widths that an exponent needs at least


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument(
        "--store", type=Path, required=True, help="folder on a file system that outlives the job"
    )
    parser.add_argument("--seeds", type=int, default=1024, help="seeds at every width")
    parser.add_argument(
        "--widths", type=int, nargs="+", default=(16, 32, 64, 128, 256), help="hidden units d1"
    )
    parser.add_argument("--single", action="store_true", help="only this process")
    parser.add_argument("--coordinator", help="address:port of process 0, where JAX cannot find it")
    parser.add_argument("--processes", type=int, help="number of processes, with --coordinator")
    parser.add_argument("--index", type=int, help="number of this process, with --coordinator")
    options = parser.parse_args()
    if options.coordinator is not None and None in (options.processes, options.index):
        parser.error("--coordinator needs --processes and --index")
    return options


def main() -> None:
    options = arguments()
    logging.basicConfig(format="%(asctime)s %(message)s")
    logging.getLogger("specjax").setLevel(logging.INFO)
    if not options.single:
        # CPU processes talk through gloo; accelerators have their own network.
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(options.coordinator, options.processes, options.index)
    target = jax.random.normal(jax.random.key(1), (D2, D0))

    def measure(key: Array, d1: AnySize) -> dict[str, Array]:
        gradient = relu_network.gradient(relu_network.init(key, D0, d1, D2), target)
        return {"first": jnp.sum(gradient.w1**2), "second": jnp.sum(gradient.w2**2)}

    data = sweep.run(
        measure,
        {"d1": sweep.widths(*options.widths)},
        num_seeds=options.seeds,
        key=jax.random.key(0),
        store=options.store,
    )
    if jax.process_index() == 0:
        print(sweep.explain(data))
        # A task of a job array may have too few widths for a fit.
        for name in ("first", "second") if len(options.widths) >= FIT else ():
            fit = fits.fit_power_law(data[name], "d1")
            print(
                f"{name}: exponent {fit.exponent:.3f} in [{fit.interval[0]:.3f},"
                f" {fit.interval[1]:.3f}]"
            )


if __name__ == "__main__":
    main()
