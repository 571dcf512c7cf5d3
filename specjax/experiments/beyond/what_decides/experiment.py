"""The experiment `what-decides` (docs/beyond/what-decides.md).

The spectral-criterion paper compares the guaranteed decreases of one step, nr(G)/st(A). Here whole
trainings are compared, each method with its best step size, by class of network, by the gradient
steps taken before, and by length; `quantities` at the start are judged by how well they predict the
outcome in small networks that were not used for choosing them.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax.numpy as jnp
import xarray as xr
from jaxtyping import Array, Key

from specjax import lab, sweep
from specjax.experiments.beyond.what_decides import drawing
from specjax.experiments.beyond.what_decides.networks import (
    FRESH,
    NETWORKS,
    ONE_BLOCK,
    ORDINARY,
    RATES,
    SMALL_RATE,
    STARTS,
    draw,
    trained,
)
from specjax.experiments.beyond.what_decides.outcomes import (
    ONE,
    SEVERAL,
    Data,
    ahead,
    brier,
    concordance,
    falls,
    in_each,
    pooled,
    select,
    speed,
    together,
    value,
)
from specjax.experiments.beyond.what_decides.quantities import QUANTITIES, quantities

METHODS = ["gradient", "spectral"]
CLAIMED, RIVALS = "race", ("nr/st", "mean nr/st")


class Config(lab.Config):
    """Numbers of networks, and lengths of the trainings."""

    seed: int = lab.config.root_seed(
        12, help="root of all randomness; another one's samples chose what is claimed"
    )
    seeds: int = lab.config.seeds(50, least=20, help="networks of each class and start")
    classes: int = lab.config.integer(
        2, least=2, help="classes of networks, from the first on: tanh, linear, ReLU, SwiGLU"
    )
    lengths: tuple[int, ...] = lab.config.sizes(
        10,
        30,
        100,
        points=2,
        most=lab.config.MOST_COUNT,
        help="steps K after which the two are compared",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.classes > len(NETWORKS):
            raise ValueError(f"classes must be at most {len(NETWORKS)}, got {self.classes}.")


def run_networks(config: Config, key: Key[Array, ""], one_block: bool) -> xr.Dataset:
    """Measure quantities at the start, and losses of both methods at every rate, by network and
    start: of one linear block, or of all other classes.
    """
    found: list[xr.Dataset] = []
    names = [name for name in list(NETWORKS)[: config.classes] if (name == ONE_BLOCK) == one_block]
    for name in names:
        activation, blocks, width = NETWORKS[name]

        def measure(
            key: Array,
            width: int,
            warmup: Array,
            longest: Array,
            activation: str = activation,
            blocks: int = blocks,
        ) -> dict[str, Array]:
            problem = draw(key, activation, blocks, width, warmup, longest)
            at_start = quantities(problem)
            return {
                "value": jnp.stack([at_start[quantity] for quantity in QUANTITIES]),
                "left": trained(problem, config.lengths),
            }

        warmups, kinds = zip(*STARTS.values(), strict=True)
        start = sweep.zipped(warmup=sweep.values(*warmups), longest=sweep.values(*map(int, kinds)))
        swept = lab.seeded_sweep(
            key, name, measure, config.seeds, width=sweep.widths(width), start=start
        )
        found.append(swept.isel(width=0, drop=True).drop_vars(["warmup", "longest"]))
    together = xr.concat(
        found, xr.DataArray(names, dims="network", name="network"), combine_attrs="override"
    )
    together = together.assign_coords(start=list(STARTS))
    together = sweep.labelled(together, "quantity", outputs=["value"], quantity=list(QUANTITIES))
    named: dict[str, Any] = {"optimizer": METHODS, "rate": RATES, "length": [0, *config.lengths]}
    return sweep.labelled(together, *named, outputs=["left"], **named)


def score_each(
    score: Any, data: xr.Dataset, quantities: Sequence[str], length: int
) -> xr.DataArray:
    """`concordance` or `brier` of quantities with the speed at one index of the lengths."""
    y = speed(data).isel(length=length, drop=True)
    names = xr.DataArray(list(quantities), dims="quantity", name="quantity")
    return xr.concat([score(value(data, name).rename(name), y) for name in quantities], names)


def score_claimed(score: Any, data: Data) -> tuple[xr.DataArray, xr.DataArray]:
    """Scores of the claimed quantity and of both forms of the criterion, after the fewest steps."""
    every = together(data)
    rivals = score_each(score, every, RIVALS, 0)
    claimed = score_each(score, every, [CLAIMED] * len(RIVALS), 0).assign_coords(
        quantity=rivals["quantity"]
    )
    return claimed.rename(CLAIMED), rivals.rename("nr/st")


def replace_quantities(*pairs: tuple[str, str]) -> Any:
    """A control with other quantities under some names."""
    control = lab.controls.replacing(
        "value", lambda data: lab.controls.at_labels(data["value"], "quantity", dict(pairs))
    )
    return in_each(control)


def replace_losses(change: Any) -> Any:
    """A control with other losses."""
    return in_each(lab.controls.replacing("left", change))


def use_best_rate(data: xr.Dataset) -> xr.DataArray:
    """Losses in which those at the small step size are replaced by those at the best."""
    left = data["left"]
    return left.where(left["rate"] != SMALL_RATE, left.min("rate"))


def use_small_step_gain(data: xr.Dataset) -> xr.DataArray:
    """Losses in which the gain of spectral over gradient steps is that at the small step size."""
    left = data["left"]
    gain = left.sel(rate=SMALL_RATE, drop=True)
    gain = gain.sel(optimizer="spectral", drop=True) - gain.sel(optimizer="gradient", drop=True)
    gradient = left.sel(optimizer="gradient", drop=True)
    return left.where(left["optimizer"] != "spectral", gradient + gain)


def use_first_length(data: xr.Dataset) -> xr.DataArray:
    """Losses in which those after the most steps are replaced by those after the fewest."""
    lengths = data["length"].values
    return lab.controls.at_labels(data["left"], "length", {lengths[-1]: lengths[1]})


states = lab.Statements()
EXCHANGED = {
    "the two exchanged": replace_quantities(
        (CLAIMED, RIVALS[0]), (RIVALS[0], CLAIMED), (RIVALS[1], CLAIMED)
    ),
    "nr/st in its place": replace_quantities((CLAIMED, RIVALS[0])),
}


@states(
    "small-steps",
    "With one sixteenth of the step sizes of the guarantee, nr/st tells which method is ahead in"
    " more than 70 % of networks, at every length.",
    controls={"with the best step sizes": replace_losses(use_best_rate)},
)
def right_for_small_steps(config: Config, data: Data) -> lab.Relation:
    """Among networks in which both methods lower the loss."""
    every = together(data)
    fallen = falls(pooled(every, every["left"].sel(rate=SMALL_RATE, drop=True)))
    usable = (fallen > 0).all(["optimizer", "length"])
    lead = fallen.sel(optimizer="spectral", drop=True) - fallen.sel(optimizer="gradient", drop=True)
    right = (lead > 0) == (value(every, "nr/st") > 0)
    return lab.fraction(right.isel(seed=usable.values).rename("right"), more_than=0.7)


WITH_SMALL_STEPS = {"with small step sizes": replace_losses(use_small_step_gain)}
WARM = tuple(start for start in STARTS if start != FRESH)
FROM_FRESH = {
    "from fresh weights": lab.controls.changing(
        lambda data: lab.controls.at_labels(data, "start", dict.fromkeys(ORDINARY, FRESH)), of=ONE
    )
}


@states(
    "fresh",
    "From fresh weights, with the best step sizes, spectral steps are ahead in more than half of"
    " the networks of one linear block in which nr is below st, at every length.",
    controls=WITH_SMALL_STEPS,
)
def one_block_fresh(config: Config, data: Data) -> lab.Relation:
    return lab.fraction(ahead(data[ONE], True, FRESH), more_than=0.5)


@states(
    "fresh",
    "So they are in networks of two blocks or more.",
    controls=WITH_SMALL_STEPS,
)
def blocks_fresh(config: Config, data: Data) -> lab.Relation:
    return lab.fraction(ahead(data[SEVERAL], True, FRESH), more_than=0.5)


@states(
    "blocks",
    "So they are in networks of two blocks or more after 4 or 16 gradient steps, in more than two"
    " thirds.",
    controls=WITH_SMALL_STEPS,
)
def blocks_warm(config: Config, data: Data) -> lab.Relation:
    return lab.fraction(ahead(data[SEVERAL], True, *WARM), more_than=2 / 3)


@states(
    "one-block",
    "After 4 or 16 steps of the guarantee's length on one linear block spectral steps are ahead"
    " over ten steps in fewer than half of the networks in which nr is below st.",
    controls=FROM_FRESH,
)
def one_block_warm_below(config: Config, data: Data) -> lab.Relation:
    return lab.fraction(ahead(data[ONE], True, *ORDINARY).isel(length=0), less_than=0.5)


@states(
    "one-block",
    "After 16 of them so it is where nr is at least st.",
    controls=FROM_FRESH,
)
def one_block_warm_above(config: Config, data: Data) -> lab.Relation:
    return lab.fraction(ahead(data[ONE], False, ORDINARY[1]).isel(length=0), less_than=0.5)


@states(
    "one-block",
    "After 16 of them (nr/st)(ρ/τ), the ratio at the best lengths of one step, names the method"
    " that is ahead over ten steps in more than 80 % of networks.",
    controls={
        "nr/st in its place": replace_quantities(("best steps", "nr/st")),
    }
    | FROM_FRESH,
)
def best_lengths_decide(config: Config, data: Data) -> lab.Relation:
    lead = select(speed(data[ONE]), ORDINARY[1]).isel(length=0)
    named = select(value(data[ONE], "best steps"), ORDINARY[1])
    return lab.fraction(((lead > 0) == (named > 0)).rename("right"), more_than=0.8)


@states(
    "one-block",
    "Over a hundred steps spectral steps are ahead again, in more than half of the networks in"
    " which nr is below st.",
    controls={"ten steps in the place of a hundred": replace_losses(use_first_length)},
)
def one_block_warm_late(config: Config, data: Data) -> lab.Relation:
    return lab.fraction(ahead(data[ONE], True, *ORDINARY).isel(length=-1), more_than=0.5)


@states(
    "ten-steps",
    "A race of two steps orders networks by how much faster spectral steps are over ten better than"
    " nr/st does, in either form, by Kendall's τ.",
    controls=EXCHANGED,
    holds=None,
)
def race_orders(config: Config, data: Data) -> lab.Relation:
    return lab.ahead(*score_claimed(concordance, data), least=0)


@states(
    "ten-steps",
    "It gives the probability that they are 1.5 times as fast over ten steps with a smaller error"
    " than nr/st, in networks that were not fitted.",
    controls=EXCHANGED,
    holds=None,
    post_hoc=(
        "First one half was judged alone, and which half a network was in followed from how many"
        " were left out before it, so that one more took a sixth from the lead; judged on a fresh"
        " seed."
    ),
)
def race_is_calibrated(config: Config, data: Data) -> lab.Relation:
    claimed, rivals = score_claimed(brier, data)
    return lab.ahead(rivals, claimed, least=0)


@states(
    "hundred-steps",
    "In networks of two blocks or more none of the quantities, nor how much faster spectral steps"
    " were over ten steps, has a Kendall's τ above 0.4 with how much faster they are over a"
    " hundred.",
    controls={
        "what happened at the end": lab.controls.replacing(
            "value", lambda data: data["value"] * 0 + final_speed(data), of=SEVERAL
        )
    },
)
def nothing_foretells(config: Config, data: Data) -> lab.Relation:
    several = data[SEVERAL]
    early, late = (speed(several).isel(length=place, drop=True) for place in (0, -1))
    found = score_each(concordance, several, list(QUANTITIES), -1)
    first = concordance(early.rename("first steps"), late).expand_dims(quantity=["the first steps"])
    return lab.below(xr.concat([found, first], "quantity").rename("Kendall's τ"), 0.4, "0.4")


def final_speed(data: xr.Dataset) -> xr.DataArray:
    """Log ratio of both methods' progress at the end, for all networks; 0 where undefined."""
    fallen = falls(data["left"]).max("rate").isel(length=-1, drop=True)
    ratio = fallen.sel(optimizer="spectral", drop=True) / fallen.sel(
        optimizer="gradient", drop=True
    )
    return xr.ufuncs.log(ratio.where(ratio > 0, 1.0)).fillna(0.0)


EXPERIMENT = lab.Experiment(
    "what-decides",
    lab.ledger.Ledger.from_conjectures(
        "what-decides",
        small_steps=(
            "nr(G)/st(A) is the ratio of the two speeds for short steps, and says there which"
            " method is ahead."
        ),
        fresh=(
            "From fresh weights, with the best step sizes, spectral steps are ahead below nr(G) ="
            " st(A) too."
        ),
        blocks="In networks of two blocks or more they are so after gradient steps as well.",
        one_block=(
            "On one linear block gradient steps are ahead over ten steps once gradient steps have"
            " been taken, on either side of nr(G) = st(A), as (nr/st)(ρ/τ) says; over a hundred"
            " steps spectral steps are ahead again."
        ),
        ten_steps=(
            "A race of two steps foretells more of ten steps than the criterion does, by a little."
        ),
        hundred_steps=(
            "Over a hundred steps nothing that was measured at the start foretells much, the"
            " criterion or another quantity."
        ),
    ),
    title="What decides between spectral and gradient steps",
    summary=(
        "nr(G)/st(A) says which method is ahead while steps are short. With the best step sizes"
        " spectral steps are ahead on either side of it, but for ten steps on one linear block"
        " that gradient steps have warmed up, where gradient steps are ahead on either side."
    ),
    config=Config,
    measure={
        ONE: partial(run_networks, one_block=True),
        SEVERAL: partial(run_networks, one_block=False),
    },
    statements=states,
    headlines=("one-block-fresh", "one-block-warm-below"),
    headlines_read=(ONE,),
    scales={
        "smoke": {"seeds": 20, "lengths": (10, 30)},
        "paper": {"seed": 13, "seeds": 300, "classes": len(NETWORKS)},
    },
    figure=drawing.draw,
)
