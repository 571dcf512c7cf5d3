"""Problems as pure functions: `init`, `loss`, `sampled_loss` and the exact population `gradient`, one module per model."""

from specjax.models import deep_linear as deep_linear
from specjax.models import matrix_factorization as matrix_factorization
from specjax.models import relu_network as relu_network
from specjax.models import targets as targets
