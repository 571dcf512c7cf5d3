"""Section 2.2, Appendix F and Figure 17: stable ranks through decoder blocks at initialization, and of SwiGLU networks by batch.

Texts are of Zipf's tokens or of distinct ones, embedded at three scales: each bound comes near what it bounds for some of them.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Key

from specjax import lab, sizes, spectral, sweep
from specjax.experiments.ledgers import ledger
from specjax.models import decoder_block, mlp
from specjax.models.transformer import rms_norm
from specjax.spectral.squaring import stable_rank_above
from specjax.theory import stable_rank as theory

DELTA = 0.2
"""δ of Proposition 2.14, which takes d ≥ C δ^(-2) log n with an open C."""
TEXTS = {
    "Zipf": (1.0, 0.0, 0.0),
    "Zipf, causal": (1.0, 0.0, 1.0),
    "distinct, causal": (1.0, 1.0, 1.0),
    "distinct, small": (0.1, 1.0, 0.0),
    "Zipf, large": (100.0, 0.0, 0.0),
}
"""The mean square of the entries of embeddings, whether tokens are distinct, and whether there is a mask."""
OF_SIZE_ONE = ["Zipf", "Zipf, causal", "distinct, causal"]
NAMES = ("attention_input", "after_attention", "mlp_input", "output")
ACTIVATIONS = ("swiglu", "relu", "relu_squared")
SHARP, AMBIENT, FLAT = 1.1, 0.6, 2.0
"""Over π, what bounds st(B); of the width, what independent entries pass at the largest batch; and the least growth with the batch."""
FEW, TOKENS, ROWS, EPS = 16, 64, 128, 0.5
"""Vocabulary and tokens of Lemma 2.9; rows and ε of Lemma 2.12."""

Data = Mapping[str, xr.Dataset]


class Config(lab.Config):
    """Sizes of blocks and networks, and draws."""

    d: int = lab.integer(64, least=8, help="model dimension; MLPs are four times as wide")
    vocabulary: int = lab.integer(1000, least=2, help="tokens")
    lengths: tuple[int, ...] = lab.sizes(16, 32, 64, 128, 256, least=8, points=5, help="sequence lengths n")
    blocks: int = lab.integer(6, least=3, help="depth")
    seeds: int = lab.seeds(24, help="draws of blocks")
    networks: int = lab.seeds(64, help="draws of networks")
    hidden: int = lab.integer(128, least=8, help="hidden width of the networks of Figure 17; inputs a quarter of it")
    batches: tuple[int, ...] = lab.sizes(32, 4096, least=8, points=2, help="batch sizes of Figure 17")
    lemma_d: int = lab.integer(512, least=64, help="dimension of Lemmas 2.9 and 2.12")
    lemma_seeds: int = lab.seeds(300, help="draws of these lemmas")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.vocabulary < self.lengths[-1]:
            raise ValueError(
                f"Distinct tokens need a vocabulary of at least {self.lengths[-1]}, got {self.vocabulary}."
            )


def run(config: Config, key: Key[Array, ""]) -> Data:
    """Stable ranks, and their bounds, block by block; of networks by batch size; both sides of two lemmas."""
    n = config.lengths[-1]
    zipf, few = (jnp.asarray(theory.zipf(size, 1.0), jnp.float32) for size in (config.vocabulary, FEW))

    def depth(key: Key[Array, ""], size: Array, distinct: Array, causal: Array) -> dict[str, Array]:
        tokens = decoder_block.zipf_tokens(sizes.stream(key, "tokens"), n, zipf)
        tokens = jnp.where(distinct > 0, jnp.arange(n), tokens)
        embedded = decoder_block.embed(sizes.stream(key, "embedding"), tokens, config.vocabulary, config.d)

        def block(x: Array, key: Array) -> tuple[Array, dict[str, Array]]:
            found = decoder_block.apply(decoder_block.init(key, config.d, 4 * config.d), x, causal=causal > 0)
            squares, after = jnp.mean(x**2, axis=1), jnp.mean(found.output**2, axis=1)
            norms = theory.ColumnNorms(jnp.min(squares), jnp.max(squares))
            ranks = stable_rank_above(jnp.stack([x, *(getattr(found, name) for name in NAMES)]))
            bounds, grown = theory.block_bounds(ranks[0], norms, DELTA), (1 + DELTA) / (1 - DELTA)
            # As printed, with π for 2π and E ReLU(G)² = 1/2 for c_σ.
            bounds = bounds._replace(output=np.pi * grown * (1 + 2 * grown * (norms.high + 1)))
            hidden, before = stable_rank_above(jnp.stack([found.mlp_hidden, found.mlp_preactivation]))
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

        beginnings = (jnp.arange(n)[None] < jnp.array(config.lengths)[:, None]).astype(jnp.float32)[:, :, None]
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
        table, w = (sizes.normal(sizes.stream(key, name), (rows, d)) for name, rows in (("table", FEW), ("w", ROWS)))
        tokens = decoder_block.zipf_tokens(sizes.stream(key, "tokens"), TOKENS, few)
        counts = jnp.zeros(FEW).at[tokens].add(1.0)
        deviations = jnp.where(counts > 0, jnp.abs(jnp.mean(table**2, axis=1) - 1), 0)
        z = w @ table[0] / jnp.linalg.norm(table[0])
        return {
            "embedded": spectral.stable_rank(table[tokens]),
            "equally_common": spectral.stable_rank(table),
            "embedding_bound": theory.embedding_bound(jnp.max(deviations), jnp.max(counts) / TOKENS),
            "shares": jnp.stack([jnp.mean(jax.nn.relu(z) ** 2), jnp.mean((z >= 1).astype(z.dtype))]),
        }

    def swept(measure: Callable[..., dict[str, Array]], over: Mapping[str, Any], seeds: int) -> xr.Dataset:
        found = sweep.run(measure, over, seeds=seeds, key=sizes.stream(key, measure.__name__))
        return found.rename({dim: _dimension(str(dim)) for dim in found.dims if "_dim_" in str(dim)})

    columns = zip(("size", "distinct", "causal"), zip(*TEXTS.values(), strict=True), strict=True)
    texts = {"text": sweep.zipped(**{name: sweep.values(*column) for name, column in columns})}
    labels = {"text": list(TEXTS), "of": list(NAMES), "end": ["smallest", "largest"], "n": list(config.lengths)}
    return {
        "depth": swept(depth, texts, config.seeds).assign_coords(labels),
        "networks": swept(networks, {"n": sweep.widths(*config.batches)}, config.networks),
        "lemmas": swept(lemmas, {"d": sweep.widths(config.lemma_d)}, config.lemma_seeds),
    }


def _dimension(dim: str) -> str:
    """What is along a dimension of a result: blocks and what is counted in each, or layers, or the two activations of Lemma 2.12."""
    name, place = dim.split("_dim_")
    if place == "1":
        return {"rank": "of", "bound": "of", "by_length": "n"}.get(name, "end")
    return {"shares": "activation"}.get(name, "layer" if name in (*ACTIVATIONS, "independent") else "block")


def _other_text(of: str) -> Callable[[Config, Data], Data]:
    """A control: bounds made of Zipf's tokens for all texts."""
    return lab.replacing(of, lambda data: data[of].sel(text="Zipf", drop=True).broadcast_like(data[of]), of="depth")


def _reversed(of: str) -> dict[str, Callable[[Config, Data], Data]]:
    backwards = lab.replacing(of, lambda data: data[of].isel(block=slice(None, None, -1)), of="depth")
    return {"the blocks in reversed order": backwards}


def _between(found: xr.DataArray, allowed: xr.DataArray, slack: float = 0.5) -> lab.Relation:
    """The smallest above the lower end, and the largest below the upper one."""
    low = found.end == "smallest"
    return lab.always(xr.where(low, allowed, found), xr.where(low, found, allowed), slack=slack)


def _norms_by_depth(config: Config, data: Data) -> lab.Relation:
    found = data["depth"]["ends"].sel(text=OF_SIZE_ONE)
    blocks = xr.DataArray(np.arange(config.blocks), dims="block")
    return _between(found, xr.where(found.end == "smallest", 0.25, 3.0 * (1 + blocks)).broadcast_like(found), 0.6)


def _falls(ranks: xr.DataArray) -> lab.Relation:
    return lab.ahead(ranks.isel(block=slice(-1)), ranks.shift(block=-1).isel(block=slice(-1)), least=0)


def _growth(data: Data, *names: str) -> xr.DataArray:
    ranks = data["networks"][list(names)].to_dataarray("activation")
    return (ranks.isel(n=-1) / ranks.isel(n=0)).rename("st at the largest batch / at the smallest")


_FROM_A_QUARTER = "From a batch of the width on a factor 1.5 told nothing; from a quarter of it on, as in the figure, on another seed."

STATEMENTS = (
    lab.statement(
        "lemma-2-9",
        "st(X) ≤ ((1 + ε)/(1 - ε))/p_max for embedded Zipf tokens, ε the largest deviation of ‖e_j‖²/d from 1.",
        name="lemma-2-9",
        controls={"tokens that are equally common": lab.replacing("embedded", "equally_common", of="lemmas")},
    )(lambda _, data: lab.always(data["lemmas"]["embedded"], data["lemmas"]["embedding_bound"], slack=0.5)),
    lab.statement(
        "lemma-2-12",
        f"‖σ(W a)‖² < (1 - ε) τ² p (k/d) ‖a‖², with twice the printed constant, has probability at most 2 exp(-ε² p k/2) at ε = {EPS:g} "
        f"and k = {ROWS}, for ReLU and for the σ that is 0 below 1 and 1 above, which has E σ² = τ² p.",
        name="lemma-2-12",
        controls={"twice that constant": lab.replacing("shares", lambda data: data["shares"] / 2, of="lemmas")},
    )(
        lambda _, data: lab.happens(
            data["lemmas"]["shares"] < (1 - EPS) * 2 * theory.frobenius_share(1.0, theory.SMALL_BALL_RELU),
            less_than=2 * float(np.exp(-(EPS**2) * theory.SMALL_BALL_RELU * ROWS / 2)),
        )
    ),
    lab.statement(
        ("proposition-2-14-ii", "lemma-2-10"),
        "In every block the normalized states, X_att and X⁺ have stable ranks within the bounds of Proposition 2.14, that of X⁺ also with "
        "π for 2π and E ReLU(G)² for c_σ.",
        name="proposition-2-14",
        controls={"bounds of another text": _other_text("bound")},
    )(lambda _, data: lab.always(data["depth"]["rank"], data["depth"]["bound"], slack=0.5)),
    lab.statement(
        ("proposition-2-14-ii", "corollary-2-15", "figure-2"),
        f"At initialization st(B) is at most {SHARP:g} π in every block, where 2π is printed: far below the largest possible.",
        name="hidden-rank",
        controls={"the matrix before the activation": lab.replacing("hidden", "before", of="depth")},
    )(lambda _, data: lab.always(data["depth"]["hidden"], xr.DataArray(SHARP * np.pi), slack=0.5)),
    lab.statement(
        "figure-2",
        "What the released code measures, the matrix before the activation, has a larger stable rank than after it, on average.",
        name="before-and-after-activation",
        corrected=True,
        controls={
            "exchanged": lambda _, data: {**data, "depth": data["depth"].rename(before="hidden", hidden="before")}
        },
    )(lambda _, data: lab.ahead(data["depth"]["before"].mean("block"), data["depth"]["hidden"].mean("block"), least=0)),
    lab.statement(
        "proposition-2-14-i",
        "(1 - δ)² c_- ≤ ‖x_t⁺‖²/d ≤ (1 + δ)² (c_+ + 2) for every token of every block.",
        name="column-norms",
        controls={
            "c_+ for c_+ + 2": lab.replacing(
                "allowed", lambda data: data["allowed"] - 2 * (1 + DELTA) ** 2, of="depth"
            ),
            "of another text": _other_text("allowed"),
        },
        post_hoc="δ = 0.1 did not leave room enough for single tokens in 64 dimensions; judged on another seed.",
    )(lambda _, data: _between(data["depth"]["after"], data["depth"]["allowed"])),
    lab.statement(
        "eq-f-9",
        "For embeddings of entries N(0, 1) the squared column norms of X^(ℓ) are between d/4 and 3 (1 + ℓ) d.",
        name="norms-by-depth",
        controls=_reversed("ends"),
        post_hoc="d/2 and 2 (1 + ℓ) d did not leave room enough for single tokens in 32 and 64 dimensions; judged on another seed.",
    )(_norms_by_depth),
    lab.statement(
        ("eq-f-11", "corollary-2-15"),
        "Where st(X^(ℓ)) is allowed to grow as ℓ, from ℓ = 1 on it falls from each block to the next.",
        name="rank-by-depth",
        controls=_reversed("rank"),
    )(lambda _, data: _falls(data["depth"]["rank"].sel(of="output", text=OF_SIZE_ONE))),
    lab.statement(
        "corollary-2-15",
        "After one block the stable rank of the normalized states does not grow with the length of a text in which no token repeats.",
        name="length",
        controls={"before it": lab.replacing("by_length", lambda data: data["by_length"].roll(block=1), of="depth")},
    )(
        lambda _, data: lab.bounded(
            data["depth"]["by_length"].sel(text="distinct, causal", drop=True).isel(block=1), "n", slower_than=0.25
        )
    ),
    lab.statement(
        "figure-17",
        f"In SwiGLU networks at initialization the stable ranks of all hidden layers grow with the batch, by more than a factor {FLAT:g}.",
        name="swiglu-grows",
        controls={"ReLU": lab.replacing("swiglu", "relu", of="networks")},
        post_hoc=_FROM_A_QUARTER,
    )(lambda _, data: lab.above(_growth(data, "swiglu"), FLAT, f"a factor {FLAT:g}")),
    lab.statement(
        "figure-17",
        f"They come up to the ambient dimension: above {AMBIENT:g} of it in all hidden layers at the largest batch.",
        name="swiglu-ambient",
        holds=False,
        controls={"independent entries": lab.replacing("swiglu", "independent", of="networks")},
    )(
        lambda config, data: lab.above(
            data["networks"]["swiglu"].isel(n=-1) / config.hidden, AMBIENT, f"{AMBIENT:g} of the width"
        )
    ),
    lab.statement(
        "figure-17-control",
        f"In ReLU and squared ReLU networks they stay essentially constant, within a factor {FLAT:g}, in all hidden layers.",
        name="relu-flat",
        controls={"SwiGLU": lab.replacing("relu", "swiglu", of="networks")},
        post_hoc=_FROM_A_QUARTER,
    )(lambda _, data: lab.below(_growth(data, "relu", "relu_squared"), FLAT, f"a factor {FLAT:g}")),
)

EXPERIMENT = lab.Experiment(
    "decoder-block",
    ledger("spectral-criterion"),
    title="Stable ranks in decoder blocks and SwiGLU networks at initialization",
    summary="The bounds on stable ranks in a ReLU decoder block hold in every draw; where they grow with the depth, the stable rank itself "
    "falls, and after one block it does not grow with the text. Before the activation it is larger than after it. The features of SwiGLU "
    "networks have stable ranks that grow with the batch, and stay well below the width.",
    config=Config,
    measure=run,
    statements=STATEMENTS,
    scales={
        "quick": {"seed": 2},
        "smoke": {
            "d": 32,
            "vocabulary": 128,
            "lengths": (8, 16, 32, 64, 128),
            "blocks": 3,
            "seeds": 10,
            "hidden": 32,
            "batches": (8, 1024),
            "networks": 16,
            "lemma_d": 256,
            "lemma_seeds": 40,
        },
        "paper": {
            "d": 256,
            "vocabulary": 50_257,
            "lengths": (64, 128, 256, 512, 1024),
            "hidden": 512,
            "batches": (128, 16_384),
        },
    },
)
