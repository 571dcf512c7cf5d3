"""A model to be trained at several widths: how it is built, its loss, optimizer and data, and one training as a pure function."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, ArrayLike, Float, Int, Key, PyTree

from specjax.sizes import AnySize, stream

Build = Callable[[Key[Array, ""], Any], PyTree]
"""`build(key, width)`: a model as a tree with arrays. Its floating arrays are trained; all else stays."""
Loss = Callable[[PyTree, PyTree], Array]
"""`loss(model, batch)`, one number."""
Optimizer = Callable[..., optax.GradientTransformation]
"""`optimizer(rate)`, or `optimizer(rate, width=...)` where it has an argument of that name: an optax transformation."""


@dataclass(frozen=True)
class Problem:
    """What is trained: see :data:`Build`, :data:`Loss` and :data:`Optimizer`; `batch` is a tree of arrays, or a function of a key."""

    build: Build
    loss: Loss
    optimizer: Optimizer
    batch: PyTree | Callable[[Key[Array, ""]], PyTree]

    def model(self, key: Key[Array, ""], width: AnySize) -> PyTree:
        """The model of a seed before training."""
        return self.build(stream(key, "weights"), width)

    def transformation(self, rate: ArrayLike, width: AnySize) -> optax.GradientTransformation:
        """The optimizer at a rate and a width."""
        if "width" in inspect.signature(self.optimizer).parameters:
            return self.optimizer(rate, width=width)
        return self.optimizer(rate)

    def at_step(self, key: Key[Array, ""], step: ArrayLike) -> PyTree:
        """The batch that a seed is trained on at a step."""
        return self.batch(jax.random.fold_in(stream(key, "batches"), step)) if callable(self.batch) else self.batch

    def held_out(self, key: Key[Array, ""]) -> PyTree:
        """A batch of a seed that no step is trained on; where there is only one, that."""
        return self.batch(stream(key, "held out")) if callable(self.batch) else self.batch

    def final_loss(self, key: Key[Array, ""], width: AnySize, rate: ArrayLike, steps: int) -> Float[Array, ""]:
        """The loss of a seed after `steps` steps, on the batch that is held out."""
        params, static = eqx.partition(self.model(key, width), eqx.is_inexact_array)
        transformation = self.transformation(rate, width)

        def loss(params: PyTree, batch: PyTree) -> Array:
            return self.loss(eqx.combine(params, static), batch)

        def advance(carry: tuple[PyTree, optax.OptState], step: Int[Array, ""]) -> tuple[tuple[PyTree, Any], None]:
            params, state = carry
            gradients = jax.grad(loss)(params, self.at_step(key, step))
            updates, state = transformation.update(gradients, state, params)
            return (optax.apply_updates(params, updates), state), None

        (params, _), _ = jax.lax.scan(advance, (params, transformation.init(params)), jnp.arange(steps))
        return loss(params, self.held_out(key))


def checked(
    build: Build, loss: Loss, optimizer: Optimizer, batch: Any, widths: Sequence[int], rate: float, key: Key[Array, ""]
) -> Problem:
    """The problem, after one step of it was traced at every width; nothing is compiled.

    Raises:
        ValueError: a function that does not take what it gets; widths that are fewer than two, or of which two give parameters of the
            same shapes; a model without floating arrays; a loss that is not one number; an optimizer that is none.
    """
    if len(set(widths)) < 2 or len(set(widths)) < len(widths):
        raise ValueError(f"What a width changes is seen at two different ones or more, got widths={list(widths)}.")
    _check_call("build", build, "key", "width")
    _check_call("loss", loss, "model", "batch")
    _check_optimizer(optimizer, rate)
    if callable(batch):
        _check_call("batch", batch, "key")
    problem = Problem(build, loss, optimizer, batch)
    shapes: dict[tuple[Any, ...], int] = {}
    for width in widths:
        traced = tuple(_one_step(problem, key, width, rate))
        if traced in shapes:
            raise ValueError(
                f"build needs to give another model at each width, but its parameters have the same shapes at width {shapes[traced]} "
                f"and at width {width}; use the width that it gets."
            )
        shapes[traced] = width
    return problem


def _one_step(problem: Problem, key: Array, width: int, rate: float) -> list[tuple[int, ...]]:
    """The shapes of what is trained at a width, after a step has been traced."""

    def step(key: Array) -> tuple[PyTree, Array]:
        params, static = eqx.partition(problem.model(key, width), eqx.is_inexact_array)
        if not jax.tree.leaves(params):
            raise ValueError(
                f"build needs to return a tree with floating arrays, which are what is trained; at width {width} it has none."
            )
        value, gradients = jax.value_and_grad(lambda p, b: _number(problem.loss(eqx.combine(p, static), b)))(
            params, problem.at_step(key, 0)
        )
        transformation = problem.transformation(jnp.asarray(rate), width)
        if not (hasattr(transformation, "init") and hasattr(transformation, "update")):
            raise ValueError(
                f"optimizer(rate) needs to return an optax transformation, got a {type(transformation).__name__}; pass e.g. optax.adam."
            )
        state = transformation.init(params)
        try:
            updates, _ = transformation.update(gradients, state, params)
        except TypeError as error:
            if "missing" not in str(error):
                raise
            raise ValueError(
                f"An optimizer gets gradients, state and parameters, and this one asks for more ({error}); close over it in "
                "optimizer(rate)."
            ) from error
        return optax.apply_updates(params, updates), value

    params, _ = jax.eval_shape(step, key)
    return [leaf.shape for leaf in jax.tree.leaves(params)]


def _number(value: Any) -> Array:
    if jnp.shape(value) != ():
        raise ValueError(
            f"loss needs to return one number, got shape {jnp.shape(value)}; take the mean over the batch."
        )
    return value


def _check_optimizer(optimizer: Any, rate: float) -> None:
    if not callable(optimizer):
        raise ValueError(
            f"optimizer needs to be a function of the rate, such as optax.adam, got a {type(optimizer).__name__}; write lambda rate: "
            "and what it is made of."
        )
    takes = inspect.signature(optimizer).parameters
    named = {"width": 0} if "width" in takes else {}
    try:
        inspect.signature(optimizer).bind(rate, **named)
    except TypeError as error:
        raise ValueError(
            f"optimizer gets a rate, and a width where it has an argument of that name, but has the signature "
            f"optimizer{inspect.signature(optimizer)} ({error}); give the others a default, or wrap it in a lambda."
        ) from None


def _check_call(name: str, function: Any, *arguments: str) -> None:
    wanted = f"{name}({', '.join(arguments)})"
    if not callable(function):
        raise ValueError(f"{name} needs to be a function {wanted}, got a {type(function).__name__}.")
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError as error:
        raise ValueError(
            f"{name} is called as {wanted}, but has the signature {name}{inspect.signature(function)} ({error}); wrap it in a lambda."
        ) from None
