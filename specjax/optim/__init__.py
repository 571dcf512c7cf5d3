"""Spectral optimizers as optax gradient transformations: orthogonalization, Muon, steepest descent in the spectral norm."""

from specjax.optim.hyperparameters import inject_hyperparams as inject_hyperparams
from specjax.optim.matrices import IN_OUT as IN_OUT
from specjax.optim.matrices import OUT_IN as OUT_IN
from specjax.optim.matrices import Fans as Fans
from specjax.optim.momentum import momentum as momentum
from specjax.optim.muon import muon as muon
from specjax.optim.orthogonal import normalize_columns as normalize_columns
from specjax.optim.orthogonal import normalize_rows as normalize_rows
from specjax.optim.orthogonal import orthogonalize as orthogonalize
from specjax.optim.orthogonal import spectral_descent as spectral_descent
from specjax.optim.routing import Routing as Routing
from specjax.optim.routing import routing as routing
from specjax.optim.scaled import scale_by_factor_gram as scale_by_factor_gram
from specjax.optim.scales import SCALES as SCALES
from specjax.optim.schedules import decay_on_plateau as decay_on_plateau
from specjax.optim.schedules import geometric as geometric
from specjax.optim.schedules import random_geometric as random_geometric
from specjax.optim.switch import RankSwitchState as RankSwitchState
from specjax.optim.switch import rank_switch as rank_switch
