"""Closed forms and bounds, one module per problem, each labelled exact, bound or asymptotic.

`stable_rank`, `finite_capacity`, `muon_logits` and `feature_bulk` load parts of SciPy that are slow
to import, and `relu_one_input` loads `specjax.moments`: import these by name.
"""

from specjax.theory import activations as activations
from specjax.theory import angles as angles
from specjax.theory import capacity as capacity
from specjax.theory import deep_linear as deep_linear
from specjax.theory import dominance as dominance
from specjax.theory import geometry as geometry
from specjax.theory import gradient_rank as gradient_rank
from specjax.theory import layered as layered
from specjax.theory import matrix_factorization as matrix_factorization
from specjax.theory import momentum as momentum
from specjax.theory import one_step as one_step
from specjax.theory import polar_newton as polar_newton
from specjax.theory import preconditioning as preconditioning
from specjax.theory import random_features as random_features
from specjax.theory import relu_network as relu_network
from specjax.theory import second_moment as second_moment
from specjax.theory import spectral_race as spectral_race
from specjax.theory import wishart as wishart
