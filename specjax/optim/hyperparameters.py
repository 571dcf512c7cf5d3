"""Hyperparameters stored in the optimizer's state, where they can be scheduled or set between
updates.
"""

import inspect
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import optax
from jaxtyping import ArrayLike

NUMBERS = (ArrayLike, optax.ScalarOrSchedule, float)
"""The annotations of arguments that are numbers, arrays or schedules of them."""


def inject_hyperparams(
    factory: Callable[..., optax.GradientTransformation],
) -> Callable[..., optax.GradientTransformationExtraArgs]:
    """`optax.inject_hyperparams` for the functions of `specjax.optim`, such as `muon`: numbers may
    be schedules, and other arguments stay as they are.

    optax treats every callable that `static_args` does not name as a schedule, so it would call a
    method, a scale or a function that gives labels with a step count. Here the annotations of the
    function decide which arguments are numbers. They are stored in JAX's default float. optax
    stores them in the dtype of the parameters, where bfloat16 rounds a decay of 0.999 to 1.

    Raises:
        ValueError: for a `factory` with arguments that are not annotated and none annotated as a
            number, so that none could be scheduled or set.
    """
    parameters = inspect.signature(factory, eval_str=True).parameters
    static = [name for name, parameter in parameters.items() if parameter.annotation not in NUMBERS]

    bare = any(parameter.annotation is parameter.empty for parameter in parameters.values())
    if bare and len(static) == len(parameters):
        raise ValueError(
            f"No argument of {getattr(factory, '__name__', factory)!r} is annotated as a number, so"
            " that none could be set; annotate the numbers with optax.ScalarOrSchedule or"
            " float, or take optax.inject_hyperparams, which injects every argument."
        )

    def with_hyperparams(*args: Any, **kwargs: Any) -> optax.GradientTransformationExtraArgs:
        injected = optax.inject_hyperparams(
            factory, static, hyperparam_dtype=jnp.result_type(float)
        )
        return injected(*args, **kwargs)

    return with_hyperparams
