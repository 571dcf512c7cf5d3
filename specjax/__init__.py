"""specjax: a laboratory for spectral optimizers.

The core (``sizes``, ``spectral``, ``theory``, ``models``) needs only jax, equinox, numpy and scipy; the sweep engine and the
experiments bring xarray and matplotlib with them and are imported where they are used.
"""

from importlib.metadata import version as _version

__version__ = _version("specjax")
