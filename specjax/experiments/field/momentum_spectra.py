"""Singular values of Muon's momenta in small transformers, and polar methods on them."""

from collections.abc import Sequence
from math import ceil

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float, Key

from specjax import fits, sizes
from specjax.experiments.field import language
from specjax.experiments.field.language import BLOCKS, KINDS
from specjax.models import transformer
from specjax.models.transformer import Sequences, Transformer
from specjax.spectral import NewtonSchulz, PolarExpress
from specjax.spectral.polynomials import Quintic
from specjax.training import text
from specjax.training.text import Text

Methods = dict[str, NewtonSchulz | PolarExpress]
TEXTBOOK = Quintic(2.0, -1.5, 0.5)
"""Five of these steps grow small singular values 32-fold; five of Muon's grow them 485-fold."""
TRAINED: Methods = {
    "exact": PolarExpress(12, 5e-7),
    "5 steps": NewtonSchulz(),
    "1 step": NewtonSchulz(1, TEXTBOOK),
}
"""The last, which doubles small values, stands for five steps in a model too large for them."""
METHODS: Methods = {
    "Muon, 5 steps": NewtonSchulz(),
    "textbook, 5 steps": NewtonSchulz(5, TEXTBOOK),
    "1 step": TRAINED["1 step"],
}
METHODS |= {"Polar Express, 5 steps": PolarExpress(5), "Polar Express, 8 steps": PolarExpress(8)}
"""Methods whose results follow from singular values of the momenta of Muon's five steps."""
QUANTILES, STRETCHES = (0.1, 0.25, 0.5, 0.75), 64
MEDIAN = 0.5


def spectra(momenta: language.Matrices) -> Float[Array, "kinds blocks d"]:
    """Singular values over the Frobenius norm, in descending order."""
    square = jnp.stack([momenta[kind] for kind in KINDS[:4]])
    tall = jnp.stack([momenta["up"], momenta["down"].mT])
    s = jnp.concatenate([jnp.linalg.svd(m, compute_uv=False) for m in (square, tall)])
    return s / jnp.linalg.norm(s, axis=-1, keepdims=True)


def map_ends(method: NewtonSchulz | PolarExpress, s: Float[Array, "..."]) -> Float[Array, "..."]:
    """The images of a method's steps for singular values divided by the Frobenius norm."""
    for p in method.polynomials():
        s = s * (p.a + s**2 * (p.b + s**2 * p.c))
    return s


def place(q: float, width: int) -> int:
    """Index of the quantile q: the ⌈q d⌉-th singular value in descending order."""
    return ceil(q * width) - 1


def measured(
    key: Key[Array, ""], width: int, contents: Text, rate: float, lengths: Sequence[int]
) -> dict[str, Float[Array, "lengths ..."]]:
    """Train one seed with every method of `TRAINED`.

    Returns:
        After each of the lengths: `quantile` of the momenta under five steps and of Gaussian
        `noise` of the same shapes, (kinds, blocks, quantiles); of every method of `METHODS` on
        these momenta the `error`, the root mean square of p(s) - 1, and what it has `reached` with
        the median, (methods, kinds, blocks); and the `loss` on the validation text, (trained,).
    """
    held_out = Sequences(
        jnp.asarray(text.stretches(contents.validation, STRETCHES, language.CONTEXT))
    )
    places = np.asarray([place(q, width) for q in QUANTILES])
    shapes = {"up": (4 * width, width), "down": (width, 4 * width)}
    noise = {
        kind: sizes.normal(
            sizes.stream(key, f"noise {kind}"), (BLOCKS, *shapes.get(kind, (width, width)))
        )
        for kind in KINDS
    }

    def look(models: Transformer, momenta: language.Matrices) -> dict[str, Array]:
        s = spectra({kind: momenta[kind][list(TRAINED).index("5 steps")] for kind in KINDS})
        ends = jnp.stack([map_ends(each, s) for each in METHODS.values()])
        return {
            "quantile": s[..., places],
            "noise": spectra(noise)[..., places],
            "error": jnp.sqrt(jnp.mean((ends - 1) ** 2, axis=-1)),
            "reached": ends[..., place(MEDIAN, width)],
            "loss": jax.vmap(transformer.loss, (0, None))(models, held_out),
        }

    data = jnp.asarray(contents.train)
    return language.train(key, width, data, list(TRAINED.values()), rate, lengths, look)


def logs(data: xr.Dataset, quantity: str = "quantile") -> xr.DataArray:
    """Logs of the median, averaged over kinds of matrices."""
    return (
        xr.ufuncs.log(data[quantity].sel(q=MEDIAN, drop=True))
        .mean("kind")
        .rename(f"log of the median, {quantity}")
    )


def exponent(values: xr.DataArray) -> xr.DataArray:
    """The power of M = 48 d² in a quantity with these logarithms."""
    return (fits.log_slopes(values, "width") / 2).rename("exponent in M")


def others(values: xr.DataArray) -> xr.DataArray:
    """The mean over all blocks but the last."""
    return (
        values.sel(block=slice(None, BLOCKS - 1))
        .mean("block")
        .rename(f"{values.name}, other blocks")
    )


def last(values: xr.DataArray) -> xr.DataArray:
    """The last block."""
    return values.sel(block=BLOCKS, drop=True).rename(f"{values.name}, last block")


def lost(data: xr.Dataset, trained: str) -> xr.DataArray:
    """The loss with a method less that with exact polar factors."""
    loss = data["loss"]
    return (loss.sel(trained=trained, drop=True) - loss.sel(trained="exact", drop=True)).rename(
        "nats lost"
    )
