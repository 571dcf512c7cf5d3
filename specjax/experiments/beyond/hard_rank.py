"""The experiment `hard-rank`: what a width exponent of the hard rank of representations is made of,
the update's rank or the rule that scales it (docs/beyond/hard-rank.md).
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Key
from matplotlib.figure import Figure

from specjax import fits, lab, sweep
from specjax.experiments.beyond.hard_rank_network import OPTIMIZERS, draw, hard_rank, train
from specjax.lab.drawing import COLORS, draw_sweep

RULES = {"√(out/in)": 0.5, "no scale": 0.0}
"""Powers of the width in the Frobenius norm of a step."""
READOUTS, MULTIPLES = ("fixed", "trained"), (1, 2, 4, 8)
WITHIN, MARGIN, LESS = 0.15, 0.1, 0.05
"""Of logarithms of ranks, of exponents, and by how much Adam's exponent is smaller."""


class Config(lab.Config):
    """Sizes, lengths and networks."""

    seed: int = lab.config.root_seed(1, help="root of all randomness")
    d: int = lab.config.integer(16, least=8, help="inputs and outputs; widths are 1, 2, 4, 8 d")
    lengths: tuple[int, ...] = lab.config.sizes(16, 64, help="steps after which ranks are measured")
    seeds: int = lab.config.seeds(16)


def run(config: Config, key: Key[Array, ""]) -> xr.Dataset:
    """Every optimizer, rule, readout and width, with exponents of the width for each network."""
    over = {
        "width": sweep.choices(*(m * config.d for m in MULTIPLES)),
        "power": sweep.values(*RULES.values()),
        "trained": sweep.values(0.0, 1.0),
    }

    def measure(key: Array, width: int, power: Array, trained: Array) -> dict[str, Array]:
        problem = draw(key, config.d, width)
        each = [train(name, problem, power, trained, config.lengths) for name in OPTIMIZERS]
        start = jnp.log(hard_rank(problem.first["w"]))
        return {"log start": start} | jax.tree.map(lambda *at: jnp.stack(at), *each)

    found = sweep.run(measure, over, num_seeds=config.seeds, key=key)
    labels = {"optimizer": list(OPTIMIZERS), "length": list(config.lengths)}
    data = sweep.labelled(found, "optimizer", "length", **labels)
    data = data.rename(power="rule", trained="readout")
    data = data.assign_coords(rule=list(RULES), readout=list(READOUTS))
    slopes = {"exponent": "log rank", "start": "log start"}
    return data.assign({name: fits.log_slopes(data[of], "width") for name, of in slopes.items()})


def predicted(
    config: Config, data: xr.Dataset, size: float | None = None, overlap: float | None = None
) -> xr.DataArray:
    """The logarithm of the hard rank from the update's size and overlap, with a fixed readout."""
    fixed = data.sel(readout="fixed", drop=True)
    x = fixed["size"] if size is None else xr.full_like(fixed["size"], size)
    q = fixed["overlap"] if overlap is None else overlap
    inverse = ((1 + 2 * x) / config.d + x**2 * q) / (1 + x) ** 2
    limit = (inverse + 3 * (inverse / np.pi) ** 2) / (4 * (1 - 1 / np.pi) ** 2)
    return -xr.ufuncs.log((1 + 2 * inverse) / x.width + (1 - 1 / x.width) * limit).mean("seed")


def exponents(config: Config, data: xr.Dataset, **of: float) -> xr.DataArray:
    """The slope over widths of what is predicted."""
    return fits.log_slopes(predicted(config, data, **of), "width")


def instead(first: str, second: str, dim: str = "optimizer") -> dict[str, lab.Control]:
    """A control: exponents of one optimizer or rule in the place of another's."""

    def changed(data: xr.Dataset) -> xr.DataArray:
        return lab.controls.at_labels(data["exponent"], dim, {first: second})

    return {f"{second} for {first}": lab.controls.replacing("exponent", changed)}


def lead(data: xr.Dataset, first: str, second: str, rule: str) -> xr.DataArray:
    """Of one optimizer's exponent over another's under a rule."""
    found = data["exponent"].sel(rule=rule, drop=True)
    difference = found.sel(optimizer=first, drop=True) - found.sel(optimizer=second, drop=True)
    return difference.rename("difference of exponents")


OTHERS = {
    "the start": {"size": 0.0},
    "the update alone": {"size": 1e6},
}
states = lab.Statements()


RANKS = {name: partial(predicted, **of) for name, of in OTHERS.items()}
SLOPES = {name: partial(exponents, **of) for name, of in OTHERS.items()}


@states(
    "formula",
    rivals=RANKS
    | {"full rank": lambda config, data: predicted(config, data, overlap=1 / config.d)},
)
def ranks_are_predicted(config: Config, data: xr.Dataset) -> lab.Relation:
    """With a fixed readout the hard rank is what the update's size and rank give, to 15 %, at every
    optimizer, rule, width and length.
    """
    found = data["log rank"].sel(readout="fixed", drop=True)
    return lab.near(found, predicted(config, data), WITHIN, f"{WITHIN:g}")


@states(
    "formula",
    rivals=SLOPES
    | {"full rank": lambda config, data: exponents(config, data, overlap=1 / config.d)}
    | {"0.44 at every optimizer": 0.44, "1.02 at every optimizer": 1.02},
)
def exponents_are_predicted(config: Config, data: xr.Dataset) -> lab.Relation:
    """So is its exponent in the width, to 0.1."""
    found = data["exponent"].sel(readout="fixed", drop=True)
    return lab.near(found, exponents(config, data), MARGIN, f"{MARGIN:g}")


@states("rank", controls=instead("top eighth", "Muon") | instead("√(out/in)", "no scale", "rule"))
def low_rank_lowers(config: Config, data: xr.Dataset) -> lab.Relation:
    """Under √(out/in) an eighth of the singular directions, at the same norm, has an exponent below
    Muon's by more than 0.1, with both readouts.
    """
    return lab.below(lead(data, "top eighth", "Muon", "√(out/in)"), -MARGIN, f"-{MARGIN:g}")


@states("rule", controls=instead("top eighth", "Muon") | instead("no scale", "√(out/in)", "rule"))
def low_rank_raises(config: Config, data: xr.Dataset) -> lab.Relation:
    """Without a scale it has an exponent above Muon's by more than 0.1, with both readouts."""
    return lab.above(lead(data, "top eighth", "Muon", "no scale"), MARGIN, f"{MARGIN:g}")


@states("rank", controls=instead("Muon", "top eighth"))
def muon_keeps(config: Config, data: xr.Dataset) -> lab.Relation:
    """Muon's exponent is that of the start to 0.1, under both rules and with both readouts."""
    found = (data["exponent"] - data["start"]).sel(optimizer="Muon", drop=True)
    return lab.near(found.rename("exponent less the start's"), 0.0, MARGIN, f"{MARGIN:g}")


@states("rank", controls=instead("Adam", "Muon"))
def adam_is_below(config: Config, data: xr.Dataset) -> lab.Relation:
    """Under √(out/in) Adam's exponent is below Muon's by more than 0.05, with both readouts."""
    return lab.below(lead(data, "Adam", "Muon", "√(out/in)"), -LESS, f"-{LESS:g}")


def figure(config: Config, data: xr.Dataset) -> Figure:
    """Plot hard ranks by width under both rules, and all exponents against the predicted ones."""
    drawn = Figure(figsize=(12, 4.2), layout="constrained")
    last, *panels = np.roll(drawn.subplots(1, 3), 1)
    ranks, forms = data["log rank"].sel(readout="fixed"), predicted(config, data)
    slopes, expected = data["exponent"].sel(readout="fixed"), exponents(config, data)
    for optimizer, color in zip(OPTIMIZERS, COLORS, strict=False):
        of = {"optimizer": optimizer}
        for rule, axes in zip(RULES, panels, strict=True):
            at = of | {"rule": rule, "length": config.lengths[-1]}
            found = xr.ufuncs.exp(ranks.sel(at))
            draw_sweep(axes, found, "width", label=optimizer, color=color)
            axes.plot(found.width, np.exp(forms.sel(at)), color=color)
            axes.set(title=rule, xlabel="width", ylabel="hard rank; lines are predicted")
        mean = slopes.sel(of).mean("seed")
        last.plot(*(x.stack(at=("rule", "length")) for x in (expected.sel(of), mean)), "o", c=color)
    last.axline((0.4, 0.4), slope=1, color="black", linewidth=1)
    last.set(title="both rules, all lengths", xlabel="predicted exponent", ylabel="exponent")
    panels[0].legend(fontsize="small")
    return drawn


EXPERIMENT = lab.Experiment(
    "hard-rank",
    lab.ledger.Ledger.from_conjectures(
        "hard-rank",
        formula="The update's rank and size give the hard rank of a hidden layer at every width.",
        rank="At steps of equal size for each unit, low rank lowers the width exponent.",
        rule="Where steps shrink with the width, low rank raises it.",
    ),
    title="Width exponents of the hard rank: the update's rank, or the rule of its scale",
    summary=(
        "The hard rank of a hidden layer saturates with the width. The update's rank sets where,"
        " and the scale rule how far the update counts at each width."
    ),
    config=Config,
    measure=run,
    statements=states,
    headlines=("exponents-are-predicted",),
    figure=figure,
    scales={
        "smoke": {"lengths": (8, 32), "seeds": 8},
        "paper": {"seed": 2, "d": 64, "lengths": (16, 64, 256), "seeds": 12},
    },
)
