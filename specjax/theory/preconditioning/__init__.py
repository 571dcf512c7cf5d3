"""Convergence of simplified Muon without a condition number, and of its rivals with one.

For matrix factorization and for in-context regression Muon's matrix iterates decouple into scalar
sequences, one for each eigenvalue. The closed forms are for those sequences; `adversarial` builds
instances on which SignGD depends on the condition number.
"""

from specjax.theory.preconditioning import adversarial as adversarial
from specjax.theory.preconditioning import alignment as alignment
from specjax.theory.preconditioning import conditions as conditions
from specjax.theory.preconditioning import iterations as iterations
from specjax.theory.preconditioning import many_digits as many_digits
from specjax.theory.preconditioning import perturbation as perturbation
from specjax.theory.preconditioning import scalar as scalar
from specjax.theory.preconditioning import spectral_domain as spectral_domain
