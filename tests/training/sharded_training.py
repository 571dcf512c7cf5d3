"""Trains on the devices that XLA_FLAGS forces, batches spread over all of them; saves the losses
and how batches lay.

python sharded_training.py FILE
"""

import sys

import jax
import numpy as np
import optax
from jax.sharding import Mesh

from specjax.models import transformer
from specjax.models.transformer import Architecture, Sequences
from specjax.training import train


def trained(mesh, layouts):
    """Losses of a few steps; the layout of the tokens of every traced batch is appended to
    `layouts`.
    """

    def loss(model, batch):
        jax.debug.inspect_array_sharding(
            batch.tokens, callback=lambda sharding: layouts.append(sharding.num_devices)
        )
        return transformer.loss(model, batch)

    def batch(step):
        return Sequences(
            jax.random.randint(jax.random.fold_in(jax.random.key(1), step), (16, 7), 0, 7)
        )

    run = train(
        loss,
        transformer.init(jax.random.key(0), Architecture(7, 8, 6, blocks=1)),
        batch,
        optax.sgd(0.5, momentum=0.9),
        steps=6,
        every=3,
        record=lambda *_: {},
        microbatches=2,
        mesh=mesh,
    )
    return np.asarray(run.losses)


if __name__ == "__main__":
    layouts: list[int] = []
    losses = trained(Mesh(np.array(jax.devices()), ("data",)), layouts)
    np.savez(sys.argv[1], losses=losses, layouts=layouts)
