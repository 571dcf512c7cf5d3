"""Steps along a direction, with a learning rate for each step."""

from collections.abc import Callable

import jax
from jaxtyping import Array, Float

Map = Callable[[Array], Array]


def path(
    start: Float[Array, "*runs m n"],
    rates: Float[Array, "steps ..."],
    direction: Map,
    project: Map = lambda x: x,
) -> Float[Array, "steps ... m n"]:
    """x_1, x_2, ... of x_t = project(x_(t-1) - η_t direction(x_(t-1))), from the start x_0, which
    is left out.

    Several runs lie along the leading axes, each with its own rates.

    Args:
        start: x_0.
        rates: η_1, η_2, ..., one for each step, for each run.
        direction: The gradient for gradient descent, its polar factor for simplified Muon; takes
            and returns all runs.
        project: The function applied to every iterate, such as the symmetric part.
    """

    def step(x: Array, rate: Array) -> tuple[Array, Array]:
        x = project(x - rate[..., None, None] * direction(x))
        return x, x

    return jax.lax.scan(step, start, rates)[1]
