"""Solver objects for the polar factor, one class per method."""

from specjax.spectral.methods._newton import Newton as Newton
from specjax.spectral.methods._qdwh import QDWH as QDWH
from specjax.spectral.methods._svd import SVD as SVD
from specjax.spectral.methods.base import AbstractPolar as AbstractPolar
from specjax.spectral.methods.base import ExactPolar as ExactPolar
from specjax.spectral.methods.newton_schulz import NewtonSchulz as NewtonSchulz
from specjax.spectral.methods.newton_schulz import PolarExpress as PolarExpress
