"""Problems as pure functions, one module per model: `init`, `loss`, `sampled_loss`, `gradient`."""

from importlib import import_module
from types import ModuleType

from specjax.models import associative_memory as associative_memory
from specjax.models import conditioned as conditioned
from specjax.models import decoder_block as decoder_block
from specjax.models import deep_linear as deep_linear
from specjax.models import descent as descent
from specjax.models import factorization_spectra as factorization_spectra
from specjax.models import in_context_regression as in_context_regression
from specjax.models import layerwise_descent as layerwise_descent
from specjax.models import matrix_factorization as matrix_factorization
from specjax.models import matrix_regression as matrix_regression
from specjax.models import mlp as mlp
from specjax.models import random_features as random_features
from specjax.models import relu_network as relu_network
from specjax.models import spiked as spiked
from specjax.models import targets as targets

_WITH_EQUINOX = ("recall", "transformer")


def __getattr__(name: str) -> ModuleType:
    """Import a model that is an equinox module at its first use, since equinox loads slowly."""
    if name in _WITH_EQUINOX:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *_WITH_EQUINOX]
