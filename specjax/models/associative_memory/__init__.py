"""Linear associative memory: N facts (v_i, u_i) in one d×d matrix W, read out by the largest u_jᵀ W
v_i (associative-memory paper).

Embeddings, frequencies of the items, the cross-entropy loss with its exact gradients and its
Hessian at zero, logits, and the exact number of items that a W recovers. Every function is O(N d)
in memory.
"""

from specjax.models.associative_memory.embeddings import anisotropic as anisotropic
from specjax.models.associative_memory.embeddings import isotropic as isotropic
from specjax.models.associative_memory.embeddings import spectrum as spectrum
from specjax.models.associative_memory.frequencies import frequencies as frequencies
from specjax.models.associative_memory.frequencies import minibatch as minibatch
from specjax.models.associative_memory.frequencies import minibatches as minibatches
from specjax.models.associative_memory.frequencies import power_law as power_law
from specjax.models.associative_memory.gradients import LossAndGradient as LossAndGradient
from specjax.models.associative_memory.gradients import deflated_gradient as deflated_gradient
from specjax.models.associative_memory.gradients import gradient_at_zero as gradient_at_zero
from specjax.models.associative_memory.gradients import init as init
from specjax.models.associative_memory.gradients import loss as loss
from specjax.models.associative_memory.gradients import loss_and_gradient as loss_and_gradient
from specjax.models.associative_memory.newton_step import HessianAtZero as HessianAtZero
from specjax.models.associative_memory.newton_step import hessian_at_zero as hessian_at_zero
from specjax.models.associative_memory.newton_step import newton_direction as newton_direction
from specjax.models.associative_memory.newton_step import newton_step as newton_step
from specjax.models.associative_memory.recovery import count as count
from specjax.models.associative_memory.recovery import count_of_descent as count_of_descent
from specjax.models.associative_memory.recovery import count_of_few as count_of_few
from specjax.models.associative_memory.recovery import prefix as prefix
from specjax.models.associative_memory.recovery import queries as queries
from specjax.models.associative_memory.recovery import recovered as recovered
from specjax.models.associative_memory.signals import largest_interaction as largest_interaction
from specjax.models.associative_memory.signals import signal_slope as signal_slope
from specjax.models.associative_memory.signals import signals as signals
from specjax.models.associative_memory.steps import (
    gradient_singular_values as gradient_singular_values,
)
from specjax.models.associative_memory.steps import mapped_steps as mapped_steps
from specjax.models.associative_memory.steps import one_step as one_step
from specjax.models.associative_memory.steps import polar_step as polar_step
from specjax.models.associative_memory.steps import stabilized_steps as stabilized_steps
from specjax.models.associative_memory.thresholded import thresholded_descent as thresholded_descent
from specjax.models.associative_memory.thresholded import thresholded_muon as thresholded_muon
