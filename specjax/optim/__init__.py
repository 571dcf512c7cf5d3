"""Spectral optimizers as optax gradient transformations: orthogonalization, Muon, steepest descent
in the spectral norm.
"""

from specjax.optim._cautious import add_cautious_decay as add_cautious_decay
from specjax.optim._clipping import clip_singular_values as clip_singular_values
from specjax.optim._clipping import clip_weights as clip_weights
from specjax.optim._dion import scale_by_dion as scale_by_dion
from specjax.optim._float32_wrapper import in_float32 as in_float32
from specjax.optim._hyperball import hyperball as hyperball
from specjax.optim._hyperparameters import inject_hyperparams as inject_hyperparams
from specjax.optim._lift_to_floor import lift_to_floor as lift_to_floor
from specjax.optim._log_updates import log_updates as log_updates
from specjax.optim._log_updates import logged as logged
from specjax.optim._mars import mars_correction as mars_correction
from specjax.optim._momentum import momentum as momentum
from specjax.optim._muon import muon as muon
from specjax.optim._muon_recipes import mars_m as mars_m
from specjax.optim._muon_recipes import modded_nanogpt as modded_nanogpt
from specjax.optim._muon_recipes import muon_clip as muon_clip
from specjax.optim._muon_recipes import nanochat as nanochat
from specjax.optim._muon_variants import adamuon as adamuon
from specjax.optim._muon_variants import jordan_muon as jordan_muon
from specjax.optim._muon_variants import normuon as normuon
from specjax.optim._normuon import scale_by_neuron_moment as scale_by_neuron_moment
from specjax.optim._orthogonal import normalize_columns as normalize_columns
from specjax.optim._orthogonal import normalize_rows as normalize_rows
from specjax.optim._orthogonal import orthogonalize as orthogonalize
from specjax.optim._orthogonal import spectral_descent as spectral_descent
from specjax.optim._qk_clip import Heads as Heads
from specjax.optim._qk_clip import qk_clip as qk_clip
from specjax.optim._routing import Routing as Routing
from specjax.optim._routing import routing as routing
from specjax.optim._scaled_gd import scale_by_factor_gram as scale_by_factor_gram
from specjax.optim._scales import SCALES as SCALES
from specjax.optim._schatten import schatten_direction as schatten_direction
from specjax.optim._schedules import decay_on_plateau as decay_on_plateau
from specjax.optim._schedules import geometric as geometric
from specjax.optim._schedules import random_geometric as random_geometric
from specjax.optim._shampoo import scale_by_shampoo as scale_by_shampoo
from specjax.optim._soap import scale_by_soap as scale_by_soap
from specjax.optim._soap_muon import soap_muon as soap_muon
from specjax.optim.fused_projections import Interleaved as Interleaved
from specjax.optim.matrices import IN_OUT as IN_OUT
from specjax.optim.matrices import OUT_IN as OUT_IN
from specjax.optim.matrices import Fans as Fans
from specjax.optim.rank_switch import RankSwitchState as RankSwitchState
from specjax.optim.rank_switch import rank_switch as rank_switch
