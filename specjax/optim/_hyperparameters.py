"""Hyperparameters that change: schedules in place of numbers, and numbers stored in the optimizer's
state, where they can be set between updates.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, get_args

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, ArrayLike, Int, PyTree

from specjax.arguments import as_array
from specjax.optim._routing import Routed
from specjax.programs import is_traced

if TYPE_CHECKING:
    Number = Any
else:
    Number = ArrayLike | optax.Schedule
    """A number, a scalar array or a schedule; a function behind `takes_schedules` sees numbers."""

ByGroup = Number | Mapping[str, Number]
"""A number, or one for each label of leaves; a schedule in a mapping is that group's alone."""

NUMBERS = (
    Number,
    Number | None,
    ByGroup,
    ByGroup | None,
    ArrayLike,
    optax.ScalarOrSchedule,
    float,
)
"""The annotations of arguments that are numbers, arrays or schedules of them."""

P = ParamSpec("P")


class ScheduledState(NamedTuple):
    """The number of updates, and the state of the transformation whose numbers are scheduled."""

    count: Int[Array, ""]  # type: ignore[assignment]  # hides tuple.count, as in optax
    inner_state: Any


def takes_schedules(
    factory: Callable[P, optax.GradientTransformationExtraArgs],
) -> Callable[P, optax.GradientTransformationExtraArgs]:
    """The factory of a transformation, with schedules taken for its arguments annotated `Number`.

    A schedule is a function of the number of updates before, 0 in the first, as in optax. Without
    one the factory is called as it is; with one each update makes the transformation with the
    values of its step, and the state is a `ScheduledState`.
    """
    signature = inspect.signature(factory, eval_str=True)
    numbers, static = [], []
    rest = [name for name, x in signature.parameters.items() if x.kind is x.VAR_KEYWORD]
    for name, parameter in signature.parameters.items():
        kinds = {parameter.annotation, *get_args(parameter.annotation)}
        if parameter.annotation in NUMBERS:
            numbers.append(name)
        elif kinds & {int, bool}:
            static.append(name)

    @wraps(factory)
    def called(*args: P.args, **kwargs: P.kwargs) -> optax.GradientTransformationExtraArgs:
        try:
            given = dict(signature.bind(*args, **kwargs).arguments)
        except TypeError:
            return factory(*args, **kwargs)
        for name in rest:
            given |= given.pop(name, {})
        if fixed := [name for name in static if callable(given.get(name))]:
            raise ValueError(
                f"{factory.__name__} takes no schedule as {fixed[0]}, which decides the compiled"
                " program; give it a value."
            )
        schedules = {name: given[name] for name in numbers if callable(given.get(name))}
        if not schedules:
            return factory(*args, **kwargs)
        return _scheduled(factory, given, schedules)

    return called


def _scheduled(
    factory: Callable[..., optax.GradientTransformation],
    given: Mapping[str, Any],
    schedules: Mapping[str, optax.Schedule],
) -> optax.GradientTransformationExtraArgs:
    def made(values: Mapping[str, Any]) -> optax.GradientTransformationExtraArgs:
        return optax.with_extra_args_support(factory(**{**given, **values}))

    def values(count: Array) -> dict[str, Array]:
        return {
            name: as_array(
                schedule(count), f"what the schedule of {name} returns", factory.__name__
            )
            for name, schedule in schedules.items()
        }

    # Python numbers where they are known, so that they are checked as constants are.
    start = values(jnp.zeros((), jnp.int32))
    first = made({k: x if is_traced(x) or x.shape else x.item() for k, x in start.items()})

    def init(params: PyTree) -> ScheduledState:
        return ScheduledState(jnp.zeros((), jnp.int32), first.init(params))

    def update(
        updates: PyTree, state: ScheduledState, params: PyTree | None = None, **extra_args: Any
    ) -> tuple[PyTree, ScheduledState]:
        dtype = _widest_dtype((updates, params))
        now = {name: x.astype(dtype) for name, x in values(state.count).items()}
        updates, inner = made(now).update(updates, state.inner_state, params, **extra_args)
        return updates, ScheduledState(optax.safe_increment(state.count), inner)

    routed = isinstance(first.init, Routed)
    return optax.GradientTransformationExtraArgs(
        Routed(init, first.init.routes) if routed else init, update
    )


def _widest_dtype(tree: PyTree) -> Any:
    """The dtype of real numbers that promotes no leaf, at least float32."""
    found = np.dtype(np.float32)
    for leaf in jax.tree.leaves(tree):
        if hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.inexact):
            found = np.promote_types(found, jnp.finfo(leaf.dtype).dtype)
    return found


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
