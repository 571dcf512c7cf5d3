"""Numbers of an optimizer as part of its state, to be scheduled or set between updates."""

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
    """`optax.inject_hyperparams` of a function of `specjax.optim`, such as `muon`: numbers may be
    schedules, all else is left as it is.

    optax takes every callable for a schedule unless it is named: a method, a scale, or a function
    that gives labels would be called with a step count. Here the annotations of the function say
    which arguments are numbers. These are kept in JAX's default float: in the dtype of bfloat16
    parameters, as optax keeps them, a decay of 0.999 would be 1.

    Raises:
        ValueError: arguments of `factory` have no annotations, and none has that of a number, so
            that nothing could be scheduled or set.
    """
    parameters = inspect.signature(factory, eval_str=True).parameters
    static = [name for name, parameter in parameters.items() if parameter.annotation not in NUMBERS]

    bare = any(parameter.annotation is parameter.empty for parameter in parameters.values())
    if bare and len(static) == len(parameters):
        raise ValueError(
            f"No argument of {getattr(factory, '__name__', factory)!r} is annotated as a number, so"
            " that none could be set; annotate those that are with optax.ScalarOrSchedule or"
            " float, or take optax.inject_hyperparams, which asks every argument."
        )

    def with_hyperparams(*args: Any, **kwargs: Any) -> optax.GradientTransformationExtraArgs:
        injected = optax.inject_hyperparams(
            factory, static, hyperparam_dtype=jnp.result_type(float)
        )
        return injected(*args, **kwargs)

    return with_hyperparams
