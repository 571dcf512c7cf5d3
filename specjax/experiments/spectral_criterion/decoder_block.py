"""Section 2.2 and Figure 17: stable ranks through decoder blocks at initialization, and of SwiGLU networks by batch."""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from matplotlib.figure import Figure

from specjax import sizes, sweep
from specjax.experiments.contract import Check, Data, Experiment, Table
from specjax.experiments.means import mean_of
from specjax.experiments.plots import COLORS, draw_mean, draw_sweep
from specjax.experiments.validation import check_root_seed, check_seeds, check_sizes
from specjax.experiments.verdicts import bound_check, difference_check, exponent_check, mean_check
from specjax.models import decoder_block, mlp
from specjax.sizes import AnySize
from specjax.spectral.squaring import stable_rank_above
from specjax.theory import stable_rank as theory

PAPER = "spectral-criterion"
DELTA = 0.2
"""δ of Proposition 2.14, which takes d ≥ C δ^(-2) log n with an open C: at d = 32 already its bounds hold in every draw."""
NAMES = ("attention_input", "after_attention", "mlp_input", "mlp_hidden", "output")
LAYERS = 3


@dataclass(frozen=True)
class Config:
    """Sizes of blocks and networks, and draws."""

    d: int = field(default=64, metadata={"help": "model dimension"})
    expansion: int = field(default=4, metadata={"help": "MLP width over d"})
    vocabulary: int = field(default=1000, metadata={"help": "tokens"})
    lengths: tuple[int, ...] = field(default=(32, 64, 128, 256), metadata={"help": "sequence lengths n"})
    blocks: int = field(default=8, metadata={"help": "depth"})
    hidden: int = field(
        default=128, metadata={"help": "hidden width of the networks of Figure 17; inputs a quarter of it"}
    )
    batches: tuple[int, ...] = field(
        default=(128, 256, 512, 1024, 2048, 4096), metadata={"help": "batch sizes of Figure 17"}
    )
    seeds: int = field(default=12, metadata={"help": "draws"})
    seed: int = field(default=0, metadata={"help": "seed of all draws"})

    def __post_init__(self) -> None:
        check_sizes("lengths", self.lengths, least=8, points=4)
        check_sizes("batches", self.batches, least=8, points=5)
        if self.d < 8 or self.expansion < 1 or self.vocabulary < 2 or self.blocks < 2 or self.hidden < 8:
            raise ValueError(
                "decoder-block needs d and hidden >= 8, expansion >= 1, vocabulary and blocks >= 2, got "
                f"{self.d}, {self.hidden}, {self.expansion}, {self.vocabulary} and {self.blocks}."
            )
        check_seeds("seeds", self.seeds)
        check_root_seed(self.seed)


def run(config: Config) -> Data:
    """Stable ranks, and their bounds, block by block; of SwiGLU and ReLU networks by batch size."""
    probabilities = jnp.asarray(theory.zipf(config.vocabulary, 1.0), jnp.float32)
    k = config.expansion * config.d

    def depth(key: Array, causal: Array) -> dict[str, Array]:
        token_key, table_key, *keys = jax.random.split(key, config.blocks + 2)
        n = config.lengths[-1]
        tokens = decoder_block.zipf_tokens(token_key, n, probabilities)
        x = decoder_block.embed(table_key, tokens, config.vocabulary, config.d)
        counts = jnp.zeros(config.vocabulary).at[tokens].add(1.0)
        deviation = jnp.max(jnp.abs(jnp.mean(x**2, axis=1) - 1))

        def block(x: Array, key: Array) -> tuple[Array, dict[str, Array]]:
            found = decoder_block.apply(decoder_block.init(key, config.d, k), x, causal=causal > 0)
            squares = jnp.mean(x**2, axis=1)
            norms = theory.ColumnNorms(jnp.min(squares), jnp.max(squares))
            ranks = {name: stable_rank_above(getattr(found, name)) for name in NAMES}
            of_input = stable_rank_above(x)
            bounds = theory.block_bounds(of_input, norms, DELTA)._asdict()
            after, allowed = jnp.mean(found.output**2, axis=1), theory.norms_after(norms, DELTA, 1)
            return found.output, {
                "rank": jnp.stack([ranks[name] for name in NAMES]),
                "slack": jnp.stack([bounds[name] / ranks[name] for name in NAMES]),
                "preactivation": stable_rank_above(found.mlp_preactivation),
                "norm_slack": jnp.minimum(jnp.min(after) / allowed.low, allowed.high / jnp.max(after)),
                "mean_norm": jnp.mean(after),
            }

        _, found = jax.lax.scan(block, x, jnp.stack(keys))
        # Shorter texts are beginnings of the long one.
        first = decoder_block.init(keys[0], config.d, k)
        shorter = [decoder_block.apply(first, x[:length], causal=causal > 0).mlp_hidden for length in config.lengths]
        found["by_length"] = jnp.stack([stable_rank_above(hidden) for hidden in shorter])
        share = jnp.max(counts) / n
        embedding = jnp.where(deviation < 1, theory.embedding_bound(jnp.minimum(deviation, 0.999), share), jnp.inf)
        return found | {"embedded": stable_rank_above(x), "embedding_bound": embedding, "indicator": 1 / share}

    def networks(key: Array, n: AnySize) -> dict[str, dict[str, Array]]:
        x = sizes.normal(jax.random.fold_in(key, 99), (n, config.hidden // 4))
        dims = (config.hidden // 4, *[config.hidden] * LAYERS, 1)
        found = {}
        for name in ("swiglu", "relu"):
            params = mlp.init(key, dims, name, distribution="uniform")
            inputs = mlp.layer_inputs(params, x, name)[1:]
            found[name] = {f"layer_{i + 1}": stable_rank_above(a) for i, a in enumerate(inputs)}
        return found

    key = jax.random.key(config.seed)
    return {
        "depth": sweep.run(
            depth, {"causal": sweep.values(0.0, 1.0)}, seeds=config.seeds, key=sizes.stream(key, "depth")
        ),
        # A program for each batch size takes longer to compile than padded samples to run, until these are many.
        "networks": sweep.run(
            networks,
            {"n": sweep.widths(*config.batches)},
            seeds=config.seeds,
            key=sizes.stream(key, "networks"),
            plan="padded" if config.batches[-1] <= 4096 else "exact",
        ),
    }


def checks(config: Config, data: Data) -> list[Check]:
    """Bounds of Lemma 2.9, Proposition 2.14 and Corollary 2.15, what becomes of the stable rank with depth, and Figure 17."""
    depth = data["depth"]
    slack = depth["slack"].values.reshape(-1, len(NAMES))
    rank = (
        depth["rank"]
        .transpose("causal", "seed", *[d for d in depth["rank"].dims if d not in ("causal", "seed")])
        .values
    )
    hidden = rank[..., NAMES.index("mlp_hidden")]
    first, last = (rank[:, :, i, NAMES.index("mlp_input")] for i in (0, -1))
    change = mean_of((last - first).mean(axis=0))
    lengths = depth["by_length"].sel(causal=0.0).transpose("seed", ...).values
    longer = mean_of(lengths[:, -1] / lengths[:, -2])
    gated = data["networks"]["swiglu.layer_1"].transpose("n", "seed").values
    growth = mean_of(gated[-1] - gated[0])
    pre, post = depth["preactivation"].values, hidden.reshape(depth["preactivation"].values.shape)
    gap = mean_of((pre - post).mean(axis=(0, 2)))
    return [
        bound_check(
            "lemma-2-9",
            f"{PAPER}, Lemma 2.9",
            "st(X) ≤ ((1 + ε)/(1 - ε))/p_max for embedded Zipf tokens, ε the largest deviation of ‖e_j‖²/d from 1: in every draw.",
            smallest_margin=float((depth["embedding_bound"] * (1 + 1e-4) - depth["embedded"]).min()),
        ),
        bound_check(
            "proposition-2-14",
            f"{PAPER}, Proposition 2.14",
            f"The five bounds on stable ranks hold in each of {config.blocks} blocks, with and without causal mask, δ = {DELTA}: "
            "smallest bound/rank, less 1.",
            smallest_margin=float(slack.min()) - 1,
        ),
        bound_check(
            "column-norms",
            f"{PAPER}, Proposition 2.14 (i)",
            f"(1 - δ)² c_- ≤ ‖x_t⁺‖²/d ≤ (1 + δ)² (c_+ + 2) for every token of every block, δ = {DELTA}.",
            smallest_margin=float(depth["norm_slack"].min()) - 1,
        ),
        bound_check(
            "corollary-2-15",
            f"{PAPER}, Corollary 2.15",
            f"st(B^(ℓ)) ≤ 2π in every one of {config.blocks} blocks.",
            smallest_margin=float(2 * np.pi - hidden.max()),
        ),
        bound_check(
            "stable-rank-falls-with-depth",
            f"{PAPER}, Corollary 2.15, sharper [ours]",
            "Where the corollary allows (1 + ℓ)², the stable rank of the MLP input is lower in the last block than in the first, "
            "beyond 4 standard errors.",
            smallest_margin=-change.high,
        ),
        mean_check(
            "length",
            f"{PAPER}, Corollary 2.15",
            f"Mean st(B) of the first block does not depend on the number of tokens: n = {config.lengths[-1]} over "
            f"{config.lengths[-2]}.",
            predicted=1.0,
            mean=longer.mean,
            stderr=longer.stderr,
            resolution=0.41,
        ),
        difference_check(
            "before-and-after-activation",
            f"{PAPER}, Figure 2",
            "The stable rank before the activation is another one than after it, which Figure 2 says it shows.",
            difference=gap.mean,
            stderr=gap.stderr,
            resolution=0.5,
        ),
        bound_check(
            "swiglu-ambient",
            f"{PAPER}, Figure 17",
            f"With the batch st of the first layer's SwiGLU features comes up to the ambient dimension, half of {config.hidden} at least: "
            f"mean plus 4 standard errors at n = {config.batches[-1]}.",
            smallest_margin=mean_of(gated[-1]).high - config.hidden / 2,
        ),
        difference_check(
            "swiglu-grows",
            f"{PAPER}, Figure 17",
            f"It grows with the batch, from n = {config.batches[0]} to {config.batches[-1]}.",
            difference=growth.mean,
            stderr=growth.stderr,
            resolution=1.0,
        ),
        exponent_check(
            "relu-flat",
            f"{PAPER}, Figure 17",
            "The stable rank of ReLU features does not depend on the batch.",
            predicted=0.0,
            resolution=0.25,
            fit=sweep.asymptotic_exponent(data["networks"]["relu.layer_1"], "n"),
        ),
    ]


def tables(config: Config, data: Data) -> list[Table]:
    """Stable ranks by block, and by batch size."""
    ranks = data["depth"]["rank"].sel(causal=0.0).mean("seed").values
    slacks = (
        data["depth"]["slack"]
        .min([d for d in data["depth"]["slack"].dims if d != data["depth"]["slack"].dims[-1]])
        .values
    )
    rows = [
        (name.replace("_", " "), *(f"{value:.2f}" for value in ranks[:, i]), f"{slacks[i]:.1f}")
        for i, name in enumerate(NAMES)
    ]
    networks = data["networks"]
    lines = [
        (f"{name}, layer {i}", *(f"{value:.3g}" for value in networks[f"{name}.layer_{i}"].mean("seed").values))
        for name in ("swiglu", "relu")
        for i in range(1, LAYERS + 1)
    ]
    header = ("mean st", *(f"block {i}" for i in range(config.blocks)), "smallest bound / st")
    return [
        Table(f"Stable ranks at initialization, n = {config.lengths[-1]}, d = {config.d}", header, tuple(rows)),
        Table(
            f"Figure 17: st at initialization, width {config.hidden}",
            ("", *(f"n = {n}" for n in config.batches)),
            tuple(lines),
        ),
    ]


def plot(config: Config, data: Data) -> Figure:
    """Left: stable ranks against depth. Right: Figure 17."""
    figure = Figure(figsize=(11, 4.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    ranks = data["depth"]["rank"].sel(causal=0.0).values
    blocks = np.arange(config.blocks)
    for i, (name, color) in enumerate(zip(NAMES, COLORS, strict=False)):
        mean = mean_of(ranks[..., i], axis=0)
        draw_mean(left, blocks, mean, "o-", markersize=4, color=color, label=name.replace("_", " "))
    left.axhline(2 * np.pi, color="gray", linestyle="--", linewidth=1, label="2π, bound on MLP hidden")
    left.set_xticks(blocks)
    left.set_xlabel("block")
    left.set_ylabel("stable rank at initialization")
    left.legend(fontsize="small")
    for i in range(1, LAYERS + 1):
        for name, style in (("swiglu", "o"), ("relu", "x")):
            draw_sweep(
                right,
                data["networks"][f"{name}.layer_{i}"],
                "n",
                label=f"{name}, layer {i}",
                color=COLORS[i - 1],
                marker=style,
                line=True,
            )
    right.set_xlabel("batch n")
    right.set_ylabel(f"stable rank (width {config.hidden})")
    limits = right.get_ylim()
    right.set_yticks([1, 3, 10, 30, 100], ["1", "3", "10", "30", "100"])
    right.set_ylim(limits)
    right.legend(fontsize="x-small", ncol=2)
    return figure


EXPERIMENT = Experiment(
    name="decoder-block",
    paper=PAPER,
    source=f"{PAPER}, Section 2.2 and Figure 17",
    title="Stable ranks in decoder blocks and SwiGLU networks at initialization",
    summary=(
        "The bounds on stable ranks in a ReLU decoder block hold in every draw, by a wide margin; where they grow with the depth, the "
        "stable rank itself falls. Before the activation it is larger than after it. The features of SwiGLU networks have stable ranks "
        "that grow with the batch, and stay well below the width."
    ),
    scales={
        "smoke": Config(
            d=64,
            vocabulary=200,
            lengths=(16, 32, 64, 128),
            blocks=4,
            hidden=64,
            batches=(32, 64, 128, 256, 512),
            seeds=12,
        ),
        "quick": Config(),
        "paper": Config(
            d=256,
            vocabulary=50_257,
            lengths=(128, 256, 512, 1024),
            hidden=512,
            batches=(128, 256, 512, 1024, 2048, 4096, 8192, 16_384, 65_536),
            seeds=16,
        ),
    },
    run=run,
    checks=checks,
    plot=plot,
    tables=tables,
    refuted=frozenset({"swiglu-ambient"}),
)
