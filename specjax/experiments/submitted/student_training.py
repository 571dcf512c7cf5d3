"""A small network that learns from a teacher, under rules for the step of a matrix."""

from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
import xarray as xr
from jaxtyping import Array, Float, Key

from specjax import lab, sizes, sweep

Rule = Callable[[Float[Array, "m n"], Float[Array, ""]], Float[Array, "m n"]]
"""The step of a momentum matrix, from the share of the training that is done. Steps are scaled to
the Frobenius norm of a polar factor, so that one grid of rates serves all rules.
"""
_BETA = 0.9
_FLOOR = 1e-6
"""Added to singular values over the largest, so that negative powers stay finite."""


def power(p: float, last: float | None = None) -> Rule:
    """U Sᵖ Vᵀ; with `last` the power goes linearly from `p` to it."""
    slope = 0.0 if last is None else last - p

    def rule(momentum: Float[Array, "m n"], done: Float[Array, ""]) -> Float[Array, "m n"]:
        u, s, vt = jnp.linalg.svd(momentum, full_matrices=False)
        powers = (s / s[0] + _FLOOR) ** (p + slope * done)
        return (u * powers[None, :]) @ vt

    return rule


def _outputs(weights: Sequence[Array], x: Array) -> Array:
    for w in weights[:-1]:
        x = jnp.tanh(x @ w)
    return x @ weights[-1]


def _network(key: Key[Array, ""], width: int, gain: float) -> list[Array]:
    shapes = ((width, width), (width, width), (width, 8))
    return [
        gain * sizes.normal(jax.random.fold_in(key, i), shape) / shape[0] ** 0.5
        for i, shape in enumerate(shapes)
    ]


def _loss(weights: Sequence[Array], teacher: Sequence[Array], x: Array) -> Float[Array, ""]:
    """The mean squared error over the variance of the targets."""
    targets = _outputs(teacher, x)
    return jnp.mean((_outputs(weights, x) - targets) ** 2) / jnp.var(targets)


def log_loss(
    key: Key[Array, ""],
    rate: Float[Array, ""],
    rule: Rule,
    *,
    width: int,
    batch: int,
    length: int,
) -> Float[Array, ""]:
    """The logarithm of the test loss after `length` steps, whose rate falls linearly to zero. All
    rules see the same start, teacher and batches for a key.
    """

    def inputs(name: str, i: Array | int, count: int) -> Array:
        x = sizes.normal(jax.random.fold_in(sizes.stream(key, name), i), (count, width))
        return 2 * x * jnp.arange(1, width + 1) ** -0.5

    teacher = _network(sizes.stream(key, "teacher"), width, 2.0)
    weights = _network(sizes.stream(key, "start"), width, 1.0)

    def step(carry: tuple, i: Array) -> tuple[tuple, None]:
        weights, momenta = carry
        gradients = jax.grad(_loss)(weights, teacher, inputs("batch", i, batch))
        momenta = [_BETA * m + g for m, g in zip(momenta, gradients, strict=True)]
        steps = [rule(momentum, i / length) for momentum in momenta]
        weights = [
            w - rate * (1 - i / length) * min(d.shape) ** 0.5 * d / jnp.linalg.norm(d)
            for w, d in zip(weights, steps, strict=True)
        ]
        return (weights, momenta), None

    start = weights, jax.tree.map(jnp.zeros_like, weights)
    (weights, _), _ = jax.lax.scan(step, start, jnp.arange(length))
    return jnp.log(_loss(weights, teacher, inputs("test", 0, 2048)))


class StudentConfig(lab.Config):
    """Sizes of the student, lengths of training and rates."""

    seed: int = lab.config.root_seed(1, help="root of all randomness; rules were set on 0")
    width: int = lab.config.integer(32, least=8, help="inputs and hidden units")
    batch: int = lab.config.integer(64, least=8, help="examples of a step")
    lengths: tuple[int, ...] = lab.config.sizes(50, 150, help="steps of a training")
    rates: tuple[float, ...] = lab.config.grid(
        0.02, 0.04, 0.08, 0.16, 0.32, help="first rates, from too low to too high"
    )
    seeds: int = lab.config.seeds(16)


def log_losses_at_best_rates(
    rules: Mapping[str, Rule], config: StudentConfig, key: Key[Array, ""]
) -> tuple[xr.DataArray, xr.DataArray]:
    """Logarithms of test losses (seed, rule, length), each rule and length at its best rate, and
    the places of these rates in the grid.
    """
    lengths, sizes_of = config.lengths, {"width": config.width, "batch": config.batch}

    def measure(key: Key[Array, ""], rate: Float[Array, ""]) -> dict[str, Float[Array, " length"]]:
        return {
            name: jnp.stack([log_loss(key, rate, rule, length=n, **sizes_of) for n in lengths])
            for name, rule in rules.items()
        }

    found = sweep.run(
        measure, {"rate": sweep.values(*config.rates)}, num_seeds=config.seeds, key=key
    )
    labelled = sweep.labelled(found[list(rules)], "length", length=list(lengths))
    return at_best_rate(labelled.to_dataarray("rule"))


def at_best_rate(losses: xr.DataArray) -> tuple[xr.DataArray, xr.DataArray]:
    """Each seed's loss at the best rate, and the place of the least mean in the grid of rates.

    The best rate is the vertex of the parabola in log rate through the least mean and its
    neighbours, so that the grid favors no rule. At an end of the grid it is the rate there, which
    `inside` leaves undecided. `fits.optimum` gives the rate alone.
    """
    mean, last = losses.mean("seed"), losses.sizes["rate"] - 1
    place = mean.argmin("rate")
    middle = place.clip(1, last - 1)

    def around(values: xr.DataArray) -> list[xr.DataArray]:
        return [values.isel(rate=middle + side).drop_vars("rate") for side in (-1, 0, 1)]

    x0, x1, x2 = around(xr.ufuncs.log(losses.rate))
    y0, y1, y2 = around(mean)
    rise, next_rise = (y1 - y0) / (x1 - x0), (y2 - y1) / (x2 - x1)
    vertex = (x0 + x1) / 2 - rise * (x2 - x0) / (2 * (next_rise - rise))
    vertex = vertex.where(place > 0, x0).where(place < last, x2)
    weights = (
        (vertex - x1) * (vertex - x2) / ((x0 - x1) * (x0 - x2)),
        (vertex - x0) * (vertex - x2) / ((x1 - x0) * (x1 - x2)),
        (vertex - x0) * (vertex - x1) / ((x2 - x0) * (x2 - x1)),
    )
    below, here, above = (w * y for w, y in zip(weights, around(losses), strict=True))
    return below + here + above, place


def inside(relation: lab.Relation, rates: Sequence[float], data: xr.Dataset) -> lab.Relation:
    """The relation, unless a rule's best rate, at its place in `rates`, is an end of that grid."""
    return lab.within_grid(relation, data["place"], len(rates))
