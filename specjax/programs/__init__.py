"""Traced JAX programs (jaxprs), which no other room of specjax reads.

Everything that a new version of JAX may rename is read here alone: the classes of
`jax.extend.core`, the parameters of equations, and the spelling of loops.
"""

from specjax.programs.decompositions import DECOMPOSITIONS as DECOMPOSITIONS
from specjax.programs.decompositions import decomposes as decomposes
from specjax.programs.dependence import are_alike as are_alike
from specjax.programs.dependence import reached as reached
from specjax.programs.evaluation import evaluate as evaluate
from specjax.programs.evaluation import interpret as interpret
from specjax.programs.evaluation import scoped as scoped
from specjax.programs.loops import Scan as Scan
from specjax.programs.loops import While as While
from specjax.programs.loops import scan as scan
from specjax.programs.loops import while_loop as while_loop
from specjax.programs.program import Equation as Equation
from specjax.programs.program import Parameters as Parameters
from specjax.programs.program import Program as Program
from specjax.programs.program import dtype_of as dtype_of
from specjax.programs.program import is_traced as is_traced
from specjax.programs.program import is_variable as is_variable
from specjax.programs.program import shape_of as shape_of
from specjax.programs.program import trace as trace
from specjax.programs.unreadable import UnreadableProgramError as UnreadableProgramError
from specjax.programs.unreadable import UnreadableProgramWarning as UnreadableProgramWarning
