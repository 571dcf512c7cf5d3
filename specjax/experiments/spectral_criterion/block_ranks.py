"""Stable ranks along decoder blocks and networks at initialization, and their bounds."""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Key

from specjax import lab, sizes, spectral, sweep
from specjax.models import decoder_block, mlp
from specjax.models.sequence_parts import rms_norm
from specjax.spectral.gram_power_norm import stable_rank_above
from specjax.theory import stable_rank as theory

DELTA = 0.2
"""δ of Proposition 2.14, which requires d ≥ C δ^(-2) log n with an open C."""
TEXTS = {
    "Zipf": (1.0, 0.0, 0.0),
    "Zipf, causal": (1.0, 0.0, 1.0),
    "distinct, causal": (1.0, 1.0, 1.0),
    "distinct, small": (0.1, 1.0, 0.0),
    "Zipf, large": (100.0, 0.0, 0.0),
}
"""Mean square of embedding entries, whether tokens are distinct, and whether there is a mask."""
NAMES = ["attention_input", "after_attention", "mlp_input", "output"]
ACTIVATIONS = ("swiglu", "relu", "relu_squared")
FEW, TOKENS, ROWS, EPS = 16, 64, 128, 0.5
"""Vocabulary and tokens of Lemma 2.9; rows and ε of Lemma 2.12."""
Data = Mapping[str, xr.Dataset]


class Config(lab.Config):
    """Sizes of blocks and networks, and seeds."""

    d: int = lab.config.integer(64, least=8, help="model dimension; MLPs are four times as wide")
    vocabulary: int = lab.config.integer(1000, least=2, help="tokens")
    lengths: tuple[int, ...] = lab.config.sizes(
        16, 32, 64, 128, 256, least=8, points=5, help="sequence lengths n"
    )
    blocks: int = lab.config.integer(6, least=3, help="depth")
    seeds: int = lab.config.seeds(24, help="samples of blocks")
    networks: int = lab.config.seeds(64, help="samples of networks")
    hidden: int = lab.config.integer(
        128, least=8, help="hidden width of the networks of Figure 17; inputs a quarter of it"
    )
    batches: tuple[int, ...] = lab.config.sizes(
        32, 4096, least=8, points=2, most=lab.config.MOST_COUNT, help="batch sizes of Figure 17"
    )
    lemma_d: int = lab.config.integer(512, least=64, help="dimension of Lemmas 2.9 and 2.12")
    lemma_seeds: int = lab.config.seeds(300, help="samples of these lemmas")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.vocabulary < self.lengths[-1]:
            raise ValueError(
                f"Distinct tokens need a vocabulary of at least {self.lengths[-1]}, got"
                f" {self.vocabulary}."
            )


def run(config: Config, key: Key[Array, ""]) -> Data:
    n = config.lengths[-1]
    zipf, few = (
        jnp.asarray(theory.zipf(size, 1.0), jnp.float32) for size in (config.vocabulary, FEW)
    )

    def depth(key: Key[Array, ""], size: Array, distinct: Array, causal: Array) -> dict[str, Array]:
        tokens = decoder_block.zipf_tokens(sizes.stream(key, "tokens"), n, zipf)
        tokens = jnp.where(distinct > 0, jnp.arange(n), tokens)
        embedded = decoder_block.embed(
            sizes.stream(key, "embedding"), tokens, config.vocabulary, config.d
        )

        def block(x: Array, key: Array) -> tuple[Array, dict[str, Array]]:
            found = decoder_block.apply(
                decoder_block.init(key, config.d, 4 * config.d), x, causal=causal > 0
            )
            squares, after = jnp.mean(x**2, axis=1), jnp.mean(found.output**2, axis=1)
            norms = theory.ColumnNorms(jnp.min(squares), jnp.max(squares))
            ranks = stable_rank_above(jnp.stack([x, *(getattr(found, name) for name in NAMES)]))
            bounds, grown = theory.block_bounds(ranks[0], norms, DELTA), (1 + DELTA) / (1 - DELTA)
            # As printed, with π instead of 2π and E ReLU(G)² = 1/2 for c_σ.
            bounds = bounds._replace(output=np.pi * grown * (1 + 2 * grown * (norms.high + 1)))
            hidden, before = stable_rank_above(
                jnp.stack([found.mlp_hidden, found.mlp_preactivation])
            )
            return found.output, {
                "rank": ranks[1:],
                "bound": jnp.stack([getattr(bounds, name) for name in NAMES]),
                "hidden": hidden,
                "before": before,
                "ends": jnp.stack(norms),
                "after": jnp.stack([jnp.min(after), jnp.max(after)]),
                "allowed": jnp.stack(theory.norms_after(norms, DELTA, 1)),
                # With a mask a shorter text is the beginning of the long one.
                "by_length": stable_rank_above(beginnings * rms_norm(x)[None]),
            }

        beginnings = (jnp.arange(n)[None] < jnp.array(config.lengths)[:, None]).astype(jnp.float32)[
            :, :, None
        ]
        keys = jax.random.split(sizes.stream(key, "blocks"), config.blocks)
        return jax.lax.scan(block, jnp.sqrt(size) * embedded, keys)[1]

    def networks(key: Key[Array, ""], n: sizes.AnySize) -> dict[str, Array]:
        x = sizes.normal(sizes.stream(key, "inputs"), (n, config.hidden // 4))
        dims, layers = (config.hidden // 4, *[config.hidden] * 3, 1), []
        for name in ACTIVATIONS:
            params = mlp.init(sizes.stream(key, "weights"), dims, name, distribution="uniform")
            layers += mlp.layer_inputs(params, x, name)[1:]
        layers += 3 * [sizes.normal(sizes.stream(key, "independent"), (n, config.hidden))]
        ranks = stable_rank_above(jnp.stack(layers)).reshape(-1, 3)
        return dict(zip((*ACTIVATIONS, "independent"), ranks, strict=True))

    def lemmas(key: Key[Array, ""], d: sizes.AnySize) -> dict[str, Array]:
        table, w = (
            sizes.normal(sizes.stream(key, name), (rows, d))
            for name, rows in (("table", FEW), ("w", ROWS))
        )
        tokens = decoder_block.zipf_tokens(sizes.stream(key, "tokens"), TOKENS, few)
        counts = jnp.zeros(FEW).at[tokens].add(1.0)
        deviations = jnp.where(counts > 0, jnp.abs(jnp.mean(table**2, axis=1) - 1), 0)
        z = w @ table[0] / jnp.linalg.norm(table[0])
        return {
            "embedded": spectral.stable_rank(table[tokens]),
            "equally_common": spectral.stable_rank(table),
            "embedding_bound": theory.embedding_bound(
                jnp.max(deviations), jnp.max(counts) / TOKENS
            ),
            "shares": jnp.stack(
                [jnp.mean(jax.nn.relu(z) ** 2), jnp.mean((z >= 1).astype(z.dtype))]
            ),
        }

    def run_sweep(
        measure: Callable[..., dict[str, Array]], seeds: int, **over: sweep.axes.Axis
    ) -> xr.Dataset:
        return lab.seeded_sweep(key, measure.__name__, measure, seeds, **over)

    columns = zip(("size", "distinct", "causal"), zip(*TEXTS.values(), strict=True), strict=True)
    texts = sweep.zipped(**{name: sweep.values(*column) for name, column in columns})
    blocks = run_sweep(depth, config.seeds, text=texts).assign_coords(text=list(TEXTS))
    for quantities, dim, labels in (
        (("rank", "bound"), "of", NAMES),
        (("ends", "after", "allowed"), "end", ["smallest", "largest"]),
        (("by_length",), "n", config.lengths),
    ):
        blocks = sweep.labelled(blocks, "block", dim, outputs=quantities, **{dim: list(labels)})
    return {
        "depth": sweep.labelled(blocks, "block", outputs=("hidden", "before")),
        "networks": sweep.labelled(
            run_sweep(networks, config.networks, n=sweep.widths(*config.batches)), "layer"
        ),
        "lemmas": sweep.labelled(
            run_sweep(lemmas, config.lemma_seeds, d=sweep.widths(config.lemma_d)), "activation"
        ),
    }
