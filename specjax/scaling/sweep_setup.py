"""A model to be trained at several widths: how to build it, its loss, optimizer and data, and one
training as a pure function.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, ArrayLike, Float, Int, Key, PyTree

from specjax.sizes import AnySize, streams

Build = Callable[[Key[Array, ""], Any], PyTree]
"""`build(key, width)`, or `build(key, depth)`: a model as a tree, whose floating arrays are
trained.
"""
Loss = Callable[[PyTree, PyTree], Array]
"""`loss(model, batch)`, one number."""
Optimizer = Callable[..., optax.GradientTransformation]
"""`optimizer(rate)`, or of other scalars by name, and of `width=...` or `depth=...` if it has such
an argument: an optax transformation.
"""
Scalars = ArrayLike | Mapping[str, ArrayLike]
"""A rate, or scalars by name."""
Dim = Literal["width", "depth"]


@dataclass(frozen=True)
class Problem:
    """A problem to train; see `Build`, `Loss` and `Optimizer`. `batch` is a tree of arrays, or a
    function of a key.

    `dim` names the size: "width" or "depth".
    """

    build: Build
    loss: Loss
    optimizer: Optimizer
    batch: PyTree | Callable[[Key[Array, ""]], PyTree]
    dim: Dim = "width"

    def streams(self, key: Key[Array, ""]) -> Key[Array, " 3"]:
        """The keys of a seed's weights, of its batches, and of its held-out batch."""
        return streams(key, ("weights", "batches", "held out"))

    def model(self, key: Key[Array, ""], size: AnySize) -> PyTree:
        """The initial model of a seed."""
        return self.build(self.streams(key)[0], size)

    def transformation(self, scalars: Scalars, size: AnySize) -> optax.GradientTransformation:
        """The optimizer at a rate, or at scalars by name, and a size."""
        named = {self.dim: size} if self.dim in inspect.signature(self.optimizer).parameters else {}
        return (
            self.optimizer(**scalars, **named)
            if isinstance(scalars, Mapping)
            else self.optimizer(scalars, **named)
        )

    def batch_of(self, key: Key[Array, ""]) -> PyTree:
        """The batch of a key; a single batch is that of all keys."""
        return self.batch(key) if callable(self.batch) else self.batch

    def at_step(self, key: Key[Array, ""], step: ArrayLike) -> PyTree:
        """The training batch of a seed at a step."""
        return self.batch_of(jax.random.fold_in(self.streams(key)[1], step))

    def held_out(self, key: Key[Array, ""]) -> PyTree:
        """A batch of a seed that is not used for training; a single batch is used for both."""
        return self.batch_of(self.streams(key)[2])

    def final_loss(
        self, key: Key[Array, ""], size: AnySize, scalars: Scalars, steps: int
    ) -> Float[Array, ""]:
        """The loss of a seed after `steps` steps, on the held-out batch.

        It is the loss of one more step, since the program would take longer to compile with a
        second copy of the loss and of the batch than the gradient of one step takes to run.
        """
        weights, batches, held_out = self.streams(key)
        params, static = eqx.partition(self.build(weights, size), eqx.is_inexact_array)
        transformation = self.transformation(scalars, size)

        def loss(params: PyTree, batch: PyTree) -> Array:
            return self.loss(eqx.combine(params, static), batch)

        def advance(
            carry: tuple[PyTree, optax.OptState], step: Int[Array, ""]
        ) -> tuple[tuple[PyTree, Any], Array]:
            params, state = carry
            one = jnp.where(step == steps, held_out, jax.random.fold_in(batches, step))
            value, gradients = jax.value_and_grad(loss)(params, self.batch_of(one))
            updates, state = transformation.update(gradients, state, params)
            return (optax.apply_updates(params, updates), state), value

        _, losses = jax.lax.scan(
            advance, (params, transformation.init(params)), jnp.arange(steps + 1)
        )
        return losses[-1]


def check_sizes(dim: Dim, sizes: Any) -> None:
    """Raise ValueError unless `sizes` are two or more different positive ints."""
    if np.ndim(sizes) != 1 or not all(
        isinstance(size, Integral) and int(size) > 0 for size in sizes
    ):
        raise ValueError(f"{dim}s needs to be positive ints, got {sizes}; write e.g. (2, 4).")
    if len(set(sizes)) < 2 or len(set(sizes)) < len(sizes):
        raise ValueError(
            f"What a {dim} changes is seen at two different ones or more, got {dim}s={list(sizes)}."
        )


def checked(
    problem: Problem,
    sizes: Sequence[int],
    scalars: float | Mapping[str, float],
    key: Key[Array, ""],
) -> Problem:
    """The problem, after one step was traced at every size without compiling.

    Raises:
        ValueError: a function with a wrong signature; a batch that is not a tree of arrays; fewer
            than two sizes, or two that give parameters of the same shapes; a model without floating
            arrays; a loss that is not one number; a result of `optimizer` that is not an optax
            transformation. Errors of the functions themselves get a note of the call.
    """
    dim = problem.dim
    check_sizes(dim, sizes)
    _check_call("build", problem.build, "key", dim)
    _check_call("loss", problem.loss, "model", "batch")
    _check_optimizer(problem.optimizer, scalars, dim)
    _check_batch(problem.batch)
    shapes: dict[tuple[Any, ...], int] = {}
    for size in sizes:
        with _errors_with_call(dim, size):
            traced = tuple(_one_step(problem, key, size, scalars))
        if traced in shapes:
            raise ValueError(
                f"build needs to give another model at each {dim}, but its parameters have the same"
                f" shapes at {dim} {shapes[traced]} and at {dim} {size}; use the {dim} that it"
                " gets."
            )
        shapes[traced] = size
    return problem


def _one_step(
    problem: Problem, key: Array, size: int, scalars: float | Mapping[str, float]
) -> list[tuple[int, ...]]:
    """The shapes of the trained arrays at a size, after a step was traced."""

    def step(key: Array) -> tuple[PyTree, Array]:
        weights, batches, _ = problem.streams(key)
        params, static = eqx.partition(problem.build(weights, size), eqx.is_inexact_array)
        if not jax.tree.leaves(params):
            raise ValueError(
                "build needs to return a tree with floating arrays, which are what is trained; at"
                f" {problem.dim} {size} it has none."
            )
        value, gradients = jax.value_and_grad(
            lambda p, b: _number(problem.loss(eqx.combine(p, static), b))
        )(params, problem.batch_of(jax.random.fold_in(batches, 0)))
        transformation = problem.transformation(jax.tree.map(jnp.asarray, scalars), size)
        if not (hasattr(transformation, "init") and hasattr(transformation, "update")):
            raise ValueError(
                "optimizer(rate) needs to return an optax transformation, got a"
                f" {type(transformation).__name__}; pass e.g. optax.adam."
            )
        state = transformation.init(params)
        try:
            updates, _ = transformation.update(gradients, state, params)
        except TypeError as error:
            if "missing" not in str(error):
                raise
            raise ValueError(
                "An optimizer gets gradients, state and parameters, and this one asks for more"
                f" ({error}); close over it in optimizer(rate)."
            ) from error
        return optax.apply_updates(params, updates), value

    params, _ = jax.eval_shape(step, key)
    return [leaf.shape for leaf in jax.tree.leaves(params)]


@contextmanager
def _errors_with_call(dim: str, size: int) -> Iterator[None]:
    """Add a note of the call to errors that the user's functions raise."""
    try:
        yield
    except (TypeError, AttributeError, IndexError, KeyError) as error:
        note = (
            f"This was raised at {dim} {size} in one of build(key, {dim}), loss(model, batch) and"
            " optimizer(rate)."
        )
        if isinstance(error, jax.errors.ConcretizationTypeError):
            note += (
                " The rate is a traced array there, one for all rates of the grid: a schedule that"
                " looks at its value, as those of optax with warm-up do, is written with a peak of"
                " 1 and multiplied, lambda rate: optax.adam(lambda step: rate * schedule(step))."
            )
        error.add_note(note)
        raise


def _check_batch(batch: Any) -> None:
    if callable(batch):
        _check_call("batch", batch, "key")
        return
    leaves = jax.tree.leaves(batch, is_leaf=lambda node: isinstance(node, Iterator))
    if wrong := [leaf for leaf in leaves if not eqx.is_array_like(leaf)]:
        raise ValueError(
            "batch needs to be a tree of arrays, the batch of all steps, or a function of a key,"
            f" got a {type(wrong[0]).__name__}; for batches of your data write lambda key:"
            " jax.random.choice(key, data, (64,))."
        )


def _number(value: Any) -> Array:
    if jnp.shape(value) != ():
        raise ValueError(
            f"loss needs to return one number, got shape {jnp.shape(value)}; take the mean over the"
            " batch."
        )
    return value


def _check_optimizer(optimizer: Any, scalars: float | Mapping[str, float], dim: str) -> None:
    if not callable(optimizer):
        raise ValueError(
            "optimizer needs to be a function of the rate, such as optax.adam, got a"
            f" {type(optimizer).__name__}; write lambda rate: and what it is made of."
        )
    signature = inspect.signature(optimizer)
    named = {dim: 0} if dim in signature.parameters else {}
    try:
        if isinstance(scalars, Mapping):
            signature.bind(**dict.fromkeys(scalars), **named)
        else:
            signature.bind(scalars, **named)
    except TypeError as error:
        wanted = f"{' and '.join(scalars)} by name" if isinstance(scalars, Mapping) else "a rate"
        raise ValueError(
            f"optimizer gets {wanted}, and a {dim} where it has an argument of that name, but has"
            f" the signature optimizer{signature} ({error}); give the others a default, or wrap it"
            " in a lambda."
        ) from None


def _check_call(name: str, function: Any, *arguments: str) -> None:
    wanted = f"{name}({', '.join(arguments)})"
    if not callable(function):
        raise ValueError(
            f"{name} needs to be a function {wanted}, got a {type(function).__name__}."
        )
    own = list(inspect.signature(function).parameters)[: len(arguments)]
    if own != list(arguments) and sorted(own) == sorted(arguments):
        raise ValueError(
            f"{name} is called as {wanted}, but has its arguments in the order {', '.join(own)};"
            f" write lambda {', '.join(arguments)}: {name}({', '.join(own)})."
        )
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError as error:
        raise ValueError(
            f"{name} is called as {wanted}, but has the signature"
            f" {name}{inspect.signature(function)} ({error}); wrap it in a lambda."
        ) from None
