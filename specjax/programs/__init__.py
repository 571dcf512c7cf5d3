"""Traced JAX programs (jaxprs), which no other room of specjax reads.

Everything that a new version of JAX may rename is read here alone: the classes of
`jax.extend.core`, the parameters of equations, and the spelling of loops.
"""

from specjax.programs._decompositions import DECOMPOSITIONS as DECOMPOSITIONS
from specjax.programs._decompositions import decomposes as decomposes
from specjax.programs._dependence import are_alike as are_alike
from specjax.programs._dependence import reached as reached
from specjax.programs._evaluation import evaluate as evaluate
from specjax.programs._evaluation import interpret as interpret
from specjax.programs._evaluation import scoped as scoped
from specjax.programs._loops import Scan as Scan
from specjax.programs._loops import While as While
from specjax.programs._loops import scan as scan
from specjax.programs._loops import while_loop as while_loop
from specjax.programs._program import Equation as Equation
from specjax.programs._program import Parameters as Parameters
from specjax.programs._program import Program as Program
from specjax.programs._program import dtype_of as dtype_of
from specjax.programs._program import is_traced as is_traced
from specjax.programs._program import is_variable as is_variable
from specjax.programs._program import shape_of as shape_of
from specjax.programs._program import trace as trace
from specjax.programs._unreadable import UnreadableProgramError as UnreadableProgramError
from specjax.programs._unreadable import UnreadableProgramWarning as UnreadableProgramWarning
