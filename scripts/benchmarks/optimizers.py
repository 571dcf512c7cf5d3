"""One update of whole optimizers: `optax.contrib.muon`, `optim.muon`, `optim.normuon`,
`torch.optim.Muon` and `dion.Muon` on the same trees of matrices, with time, compilation and memory.

The trees are the matrices of `--layers` layers of GPT-2 small (12 layers in full) as leaves of
their own and as stacks by layer, and the experts of one layer with a batch axis. Embeddings and
vectors, which AdamW takes on every side, are left out. An update is one jitted call that gives new
parameters and a new state, without donation; those of torch and dion are `step()`, in
bfloat16 and on separate leaves. The folder of a checkout of github.com/microsoft/dion in PYTHONPATH
adds its side, on one device and without Triton.

* ms: median over `--rounds` rounds of all sides in turn; ratio: median of the ratios to optax's
  time in the same round, so a slow minute of the machine meets every side;
* compiling: seconds of XLA for the update, median over `--compilations` rounds;
* temporary, state: MiB that the compiled program reserves beside arguments and results, and that
  the state takes.

Before timing, the first update of each side is compared with its iteration in float64 in NumPy on
the first leaf, and ours with optax's on every leaf. `small_gpt.py` has the losses.

    python scripts/benchmarks/optimizers.py [--smoke]
"""

import argparse
import importlib.util
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
from timing import machine, seconds, table

from specjax import optim
from specjax.spectral import PolarExpress
from specjax.spectral.polynomials import MUON, Quintic

Tree = dict[str, jax.Array]
RATE = 0.02
OPTAX, OURS, EXPRESS = "optax.contrib.muon", "optim.muon", "optim.muon, PolarExpress(5)"
NORMUON, TORCH, DION = "optim.normuon", "torch.optim.Muon", "dion.Muon"
MIB = 2**20
DION_ROWS = (
    (4.0848, -6.8946, 2.9270),
    (3.9505, -6.3029, 2.6377),
    (3.7418, -5.5913, 2.3037),
    (2.8769, -3.1427, 1.2046),
    (2.8366, -3.0525, 1.2012),
)
"""The coefficients of zeropower_via_newtonschulz5 in dion's newton_schulz_triton.py."""


class Compiled(NamedTuple):
    """A side that is ready: a call of one update, seconds of compilation, bytes."""

    call: Callable[[], Any]
    compiling: float
    temporary: int
    state: int


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, seconds in all")
    parser.add_argument("--layers", type=int, default=2, help="layers of GPT-2 small")
    parser.add_argument("--width", type=int, default=768, help="width of GPT-2 small")
    parser.add_argument("--experts", type=int, default=8, help="experts of the layer of experts")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of all sides")
    parser.add_argument("--compilations", type=int, default=1, help="rounds of compilation")
    options = parser.parse_args()
    if options.smoke:
        options.layers, options.width, options.experts = 2, 16, 3
        options.rounds, options.compilations = 2, 1
    return options


def normal(shapes: Mapping[str, tuple[int, ...]]) -> Tree:
    """Leaves of these shapes with normal entries."""
    keys = jax.random.split(jax.random.key(0), len(shapes))
    return {
        name: jax.random.normal(key, shape)
        for key, (name, shape) in zip(keys, shapes.items(), strict=True)
    }


def trees(layers: int, width: int, experts: int) -> dict[str, Tree]:
    """Matrices as (in, out) with batch axes in front, the smallest first."""
    layer = {"proj": (1, 1), "qkv": (1, 3), "up": (1, 4), "down": (4, 1)}
    shapes = {name: (a * width, b * width) for name, (a, b) in layer.items()}
    inner = 2 * width // 3
    return {
        f"{layers} of 12 layers of GPT-2 small, separate leaves": normal(
            {f"{name}{i}": shape for i in range(layers) for name, shape in shapes.items()}
        ),
        f"{layers} of 12 layers of GPT-2 small, stacked leaves": normal(
            {name: (layers, *shape) for name, shape in shapes.items()}
        ),
        f"{experts} experts as a batch axis": normal(
            {"up": (experts, inner, 2 * inner), "down": (experts, 2 * inner, inner)}
        ),
    }


def sides(params: Tree) -> dict[str, optax.GradientTransformation]:
    """The JAX sides, optax's first; leading axes are batch axes on all of them."""
    numbers = jax.tree.map(
        lambda x: optax.contrib.MuonDimensionNumbers(x.ndim - 2, x.ndim - 1), params
    )
    return {
        OPTAX: optax.contrib.muon(RATE, muon_weight_dimension_numbers=numbers),
        OURS: optim.muon(RATE, labels="matrix"),
        EXPRESS: optim.muon(RATE, labels="matrix", method=PolarExpress(5)),
        NORMUON: optim.normuon(RATE, labels="matrix"),
    }


def prepared(transform: optax.GradientTransformation, params: Tree, gradients: Tree) -> Compiled:
    def step(gradients: Tree, state: Any, params: Tree) -> tuple[Tree, Any]:
        updates, state = transform.update(gradients, state, params)
        return optax.apply_updates(params, updates), state

    state = jax.jit(transform.init)(params)
    lowered = jax.jit(step).lower(gradients, state, params)
    start = time.perf_counter()
    compiled = lowered.compile()
    compiling = time.perf_counter() - start
    return Compiled(
        partial(compiled, gradients, state, params),
        compiling,
        compiled.memory_analysis().temp_size_in_bytes,
        sum(x.nbytes for x in jax.tree.leaves(state)),
    )


def torch_side(
    side: str, params: Tree, gradients: Tree
) -> tuple[Callable[[], Any], dict[str, Any]]:
    """`step` of torch's or dion's Muon on the transposed matrices, and these."""
    import torch

    def tensor(x: jax.Array) -> Any:
        return torch.tensor(np.asarray(x).T.copy())

    weights = {name: torch.nn.Parameter(tensor(x)) for name, x in params.items()}
    for name, weight in weights.items():
        weight.grad = tensor(gradients[name])
    if side == TORCH:
        return torch.optim.Muon(weights.values(), lr=RATE, weight_decay=0.0).step, weights
    from dion import Muon

    options = {"weight_decay": 0.0, "nesterov": True, "use_polar_express": False}
    return Muon(list(weights.values()), lr=RATE, **options).step, weights


def factor(x: np.ndarray, polynomials: Any) -> np.ndarray:
    """The iteration on one matrix in float64."""
    if x.shape[0] > x.shape[1]:
        return factor(x.T, polynomials).T
    x = x / np.linalg.norm(x)
    for p in polynomials:
        gram = x @ x.T
        x = p.a * x + (p.b * gram + p.c * gram @ gram) @ x
    return x


def expected(side: str, gradient: np.ndarray) -> np.ndarray:
    """The first step of a side on one matrix (in, out) in float64."""
    polynomials: Any = 5 * [MUON]
    if side == EXPRESS:
        polynomials = PolarExpress(5).polynomials()
    if side == DION:
        polynomials = [Quintic(*row) for row in DION_ROWS]
    x = factor(gradient.astype(np.float64), polynomials)
    if side == NORMUON:
        # After one step the second moments are those of this factor, up to a number.
        even = x / np.linalg.norm(x, axis=0)
        x = even * np.linalg.norm(x) / np.linalg.norm(even)
    return -RATE * max(1.0, gradient.shape[1] / gradient.shape[0]) ** 0.5 * x


def distance(found: np.ndarray, right: np.ndarray) -> float:
    return float(np.linalg.norm(found - right) / np.linalg.norm(right))


def check(side: str, steps: Mapping[str, np.ndarray], gradients: Tree, rtol: float) -> str:
    """Raises AssertionError unless a side's first step is that of float64."""
    name = next(iter(steps))
    matrix = (0,) * (gradients[name].ndim - 2)
    right = expected(side, np.asarray(gradients[name])[matrix])
    error = distance(np.asarray(steps[name], np.float64)[matrix], right)
    assert error <= rtol, f"{side} on {name}: {error:.1e} from float64."
    return f"  {side}: {error:.1e} from float64"


def of_tree(title: str, params: Tree, rounds: int, compilations: int) -> str:
    """Checks all sides on a tree, then measures them."""
    gradients = jax.tree.map(jnp.sin, params)
    ready: dict[str, list[Compiled]] = {}
    for _ in range(compilations):
        jax.clear_caches()
        for name, transform in sides(params).items():
            ready.setdefault(name, []).append(prepared(transform, params, gradients))
    lines, steps = [title, "agreement before timing"], {}
    for name, runs in ready.items():
        after = runs[0].call()[0]
        steps[name] = {k: np.asarray(after[k] - params[k]) for k in params}
        lines.append(check(name, steps[name], gradients, 1e-3))
    worst = max(distance(steps[OURS][k], steps[OPTAX][k]) for k in params)
    assert worst < 1e-3, f"{OURS} and {OPTAX} differ by {worst:.1e}."
    lines.append(f"  {OURS} and {OPTAX}: largest difference of a leaf {worst:.1e}")
    calls = {name: runs[0].call for name, runs in ready.items()}
    for name in torch_sides() if all(x.ndim == 2 for x in params.values()) else ():
        calls[name], weights = torch_side(name, params, gradients)
        calls[name]()
        moved = {k: w.detach().numpy().T - np.asarray(params[k]) for k, w in weights.items()}
        lines.append(check(name, moved, gradients, 0.1))
    taken = [{name: seconds(call) for name, call in calls.items()} for _ in range(rounds)]
    rows = []
    for name in calls:
        ratio = statistics.median(each[name] / each[OPTAX] for each in taken)
        cells = [f"{1e3 * statistics.median(each[name] for each in taken):.1f}", f"{ratio:.2f}"]
        if name in ready:
            compiling = statistics.median(run.compiling for run in ready[name])
            first = ready[name][0]
            cells += [
                f"{compiling:.2f}",
                f"{first.temporary / MIB:.1f}",
                f"{first.state / MIB:.1f}",
            ]
        else:
            state = sum(x.numel() * x.element_size() for x in weights.values())
            cells += ["-", "-", f"{state / MIB:.1f}"]
        rows.append((name, *cells))
    header = ("", "ms", "ratio", "compiling, s", "temporary, MiB", "state, MiB")
    return "\n".join([*lines, "", table((header, *rows))])


def torch_sides() -> list[str]:
    """The sides of torch that are installed."""
    sides = {"torch": TORCH, "dion": DION}
    return [side for module, side in sides.items() if importlib.util.find_spec(module)]


def main() -> None:
    options = arguments()
    has_torch = importlib.util.find_spec("torch") is not None
    print(machine("specjax", "jax", "optax", *(["torch"] if has_torch else [])))
    if not has_torch:
        print("torch is not installed: torch.optim.Muon is left out.")
    for title, params in trees(options.layers, options.width, options.experts).items():
        print(f"\n{of_tree(title, params, options.rounds, options.compilations)}", flush=True)


if __name__ == "__main__":
    with jax.numpy_dtype_promotion("standard"):
        main()
