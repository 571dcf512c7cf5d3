"""specjax: a laboratory for spectral optimizers.

The core (``sizes``, ``spectral``, ``theory``, ``models``) needs only jax, jaxtyping, numpy and
scipy, ``optim`` optax too. The sweep engine and the experiments bring xarray and matplotlib with
them, the transformer equinox, and are imported where they are used.
"""

from importlib.metadata import version as _version

__version__ = _version("specjax")
