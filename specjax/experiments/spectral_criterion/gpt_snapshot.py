"""Figure 19 on a small GPT: the ranks of Figures 2, 5, 6, 8 and 9 in that architecture.

At initialization its outputs and the gradients of its blocks are zero, so statements hold from the
first record on.
"""

from dataclasses import replace

import xarray as xr

from specjax import lab
from specjax.experiments.ledgers import ledger
from specjax.experiments.spectral_criterion import gpt_telemetry
from specjax.experiments.spectral_criterion.gpt_telemetry import VALUE, geometric, trained
from specjax.models import transformer
from specjax.training import text


class Config(gpt_telemetry.Config):
    """The training by Muon of a GPT of that architecture."""

    blocks: int = lab.config.integer(4, help="blocks, an even number")
    steps: int = lab.config.integer(250, most=lab.config.MOST_COUNT, help="steps")
    records: int = lab.config.integer(
        2,
        least=2,
        most=lab.config.MOST_COUNT,
        help="equally long parts of a training, each of which ends with a record",
    )

    def architecture(self, *_: object) -> transformer.Architecture:
        """The architecture of Figure 19 at these sizes."""
        return transformer.figure_19(
            text.VOCABULARY, self.width, self.context, self.blocks, self.heads
        )


RANKS = {
    "the two ranks exchanged": lambda _, data: data.rename(
        stable_rank="nuclear_rank", nuclear_rank="stable_rank"
    )
} | gpt_telemetry.LOWER
KEPT = ("perceptrons-far-below", "normalized-activations-low", "no-fall", "inequality")
states = lab.Statements(
    replace(each, controls=RANKS if VALUE.keys() <= each.controls.keys() else each.controls)
    for each in gpt_telemetry.states
    if each.name in KEPT or each.name.startswith("large-ranks")
)


@states("figure-9", along="step", controls={"W_Q": gpt_telemetry.value_for_query})
def values_are_modest(config: Config, data: xr.Dataset) -> lab.Relation:
    """The gradient of W_V, beside which there are value embeddings, has a smaller nuclear rank than
    those of W_Q, W_K and W_O.
    """
    ranks = geometric(trained(data)["nuclear_rank"])
    others = ranks.sel(matrix=["query", "key", "output"])
    return lab.below(
        (ranks.sel(matrix="value", drop=True) / others).rename("nr of W_V over the other"), 1, "1"
    )


EXPERIMENT = lab.Experiment(
    "gpt-snapshot",
    ledger("spectral-criterion"),
    title="Ranks of activations and gradients in a small GPT of the architecture of Figure 19",
    summary=(
        "In the architecture of the paper's run, too, stable ranks are low and do not fall here;"
        " W_V's gradient has the least rank."
    ),
    config=Config,
    measure=gpt_telemetry.run,
    statements=states,
    figure=gpt_telemetry.figure,
    scales={
        # Sizes, rates and seeds were chosen by runs with smaller seeds.
        "quick": {"seed": 8},
        "smoke": {"width": 48, "context": 16, "steps": 120, "stretches": 32, "seeds": 4},
        "paper": {
            "width": 768,
            "blocks": 12,
            "heads": 6,
            "context": 512,
            "batch": 64,
            "steps": 1750,
            "records": 7,
            "seeds": 2,
            "muon_rate": 0.005,
            "table_rate": 0.003,
            "seed": 8,
        },
    },
)
