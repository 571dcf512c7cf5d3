"""How many steps a spectral method needs to pass gradient descent on a linear map, exact if the
columns of the error are orthogonal, as those of a random one with many more rows than columns are.

The loss is tr(Δ B Δᵀ)/2, Δ = W - W*, with gradient G = Δ B (theory.one_step). In the eigenbasis of
B let Δ have orthogonal columns of lengths x_i, and p_i = b_i/tr B, β_i = b_i/b_1. A step of c times
the guaranteed length is

    gradient descent:  x_i → |1 - c β_i| x_i,        spectral:  x_i → |x_i - c x̄|,   x̄ = Σ p_i x_i,

since polar(G) has every column at length one and ‖G‖_*/tr B = x̄. At c = 1 the spectral step leaves
Var_p(x) of E_p(x²), twice the loss over tr B. After k gradient steps on x = 1 the fast directions
are near 0: a spectral step throws each of them to c x̄, and this noise keeps its steps short.

Asymptotic: b_i = i^(-a), a > 1, 1 << k << d^a. With s = 1 - 1/a all directions of x = (1 - β)^k
have x̄ = h = Γ(s)/(a ζ(a)) k^(-s) and E_p(x²) = 2^(-s) h. Gradient descent of K << k steps does
best with c = g k/K, log g = 1 + 1/g, g = 3.591, and leaves (1 + g)^(-s) of the loss. Spectral steps
of c = 2 - λ √h throw the fast directions to n √h and have moved slow ones by R, where with τ = K √h

    dn/dτ = 2 H(R) - λ n,    dR/dτ = 2 n,    H = ∫ z^(s-1) (e^(-z) - R)_+ dz/Γ(s),

and leave 2^s (∫ z^(s-1) (e^(-z) - R)²_+ dz/Γ(s) + n²). At the best λ that is as little as gradient
descent leaves at τ = κ(s), so that K* = κ(s)/√h grows as k^((1 - 1/a)/2). Beyond the papers;
derived in docs/beyond/spectral-race.md.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammainc, gammaln, zeta
from jaxtyping import Array, ArrayLike, Float

from specjax.arguments import checked
from specjax.linalg import eigh, singular_values
from specjax.theory.closed_forms import check_in, floats, in_float64

GRADIENT_LENGTHS = 2 ** (np.arange(-4, 49) / 4)
"""Multiples of the guaranteed step, 1/2 to 4096, of which each method has the best."""
SPECTRAL_LENGTHS = 2 ** (np.arange(-4, 6) / 4)
"""From 1/2 to 2.4; beyond 2 the noise in fast directions doubles and more."""

_GAIN = 4.591121476668622
"""1 + g, log g = 1 + 1/g: gradient descent's best reach, in units of the steps before."""
_DAMPINGS, _TIMES = np.linspace(1, 9, 33), np.linspace(0, 1.2, 241)
"""Values of λ and τ; the best λ is from 3 to 6 and κ at most 0.9."""


class Errors(NamedTuple):
    """The columns of the error in the eigenbasis of the inputs' second moment, in ascending order
    of its eigenvalues.

    `orthogonality` is ‖G‖_* over the sum of the lengths of G's columns there, at most 1. It is 1 if
    they are orthogonal, as the recursion assumes.
    """

    x: Float[Array, " d"]
    b: Float[Array, " d"]
    orthogonality: Float[Array, ""]


@checked
def errors(g: Float[Array, "m d"], b: Float[Array, "d d"]) -> Errors:
    """What the recursion takes, from the gradient G and the second moment B of a linear map.

    Directions without inputs have the error zero, since no step moves the loss along them.

    Examples:
        >>> from specjax.theory import spectral_race
        >>> found = spectral_race.errors(jnp.diag(jnp.array([2.0, 3.0])), jnp.diag(jnp.ones(2)))
        >>> sorted(found.x.tolist()), round(float(found.orthogonality), 3)
        ([2.0, 3.0], 1.0)
    """
    values, vectors = eigh(b)
    seen = values > 64 * jnp.finfo(b.dtype).eps * values[-1]
    columns = jnp.linalg.norm(g @ vectors, axis=0)
    return Errors(
        jnp.where(seen, columns / jnp.where(seen, values, 1.0), 0.0),
        jnp.where(seen, values, 0.0),
        jnp.sum(singular_values(g)) / jnp.sum(columns),
    )


@checked
def gradient_left(
    x: Float[Array, " d"], b: Float[Array, " d"], lengths: ArrayLike, steps: int
) -> Float[Array, "lengths steps"]:
    """The part of the loss that 1, 2, ... gradient steps leave, for each multiple c.

    Examples:
        >>> from specjax.theory import spectral_race
        >>> spectral_race.gradient_left(jnp.ones(2), jnp.array([1.0, 0.5]), [1.0], 2).round(3)
        Array([[0.083, 0.021]], dtype=float32)
    """
    counts = jnp.arange(1, steps + 1, dtype=x.dtype)

    def left(c: Array, count: Array) -> Array:
        # A direction that is at zero stays there, whatever its power; overflow is an infinite loss.
        powers = jnp.where(x > 0, jnp.abs(1 - c * b / jnp.max(b)) ** count * x, 0.0)
        return jnp.sum(b * powers**2)

    over_steps = jax.vmap(left, in_axes=(None, 0))
    found: Array = jax.vmap(over_steps, in_axes=(0, None))(jnp.asarray(lengths, x.dtype), counts)
    return found / jnp.sum(b * x**2)


@checked
def spectral_left(
    x: Float[Array, " d"],
    b: Float[Array, " d"],
    lengths: ArrayLike,
    steps: int,
    floor: float = 0.0,
) -> Float[Array, "lengths steps"]:
    """The part of the loss that 1, 2, ... spectral steps leave, for each multiple c.

    `floor` is the smallest singular value of G, over its largest, that the step lifts to one; it
    leaves smaller ones alone. At 0 it lifts all, zeros included.

    Examples:
        >>> from specjax.theory import spectral_race
        >>> b = jnp.array([1.0, 0.5])
        >>> spectral_race.spectral_left(jnp.ones(2), b, [0.5], 2)  # (1 - c)^2K from equal errors
        Array([[0.25  , 0.0625]], dtype=float32)
    """

    def left(c: Array) -> Array:
        def step(x: Array, _: None) -> tuple[Array, Array]:
            singular = b * x
            lifted = singular >= floor * jnp.max(singular)
            mean = jnp.sum(jnp.where(lifted, singular, 0.0)) / jnp.sum(b)
            x = jnp.where(lifted, jnp.abs(x - c * mean), x)
            return x, jnp.sum(b * x**2)

        return jax.lax.scan(step, x, length=steps)[1]

    found: Array = jax.vmap(left)(jnp.asarray(lengths, x.dtype))
    return found / jnp.sum(b * x**2)


@checked
def passing(
    gradient: Float[Array, "*batch steps"], spectral: Float[Array, "*batch steps"]
) -> Float[Array, "*batch"]:
    """K*, the number of steps from which spectral ones have left less, between whole numbers by
    a line through the logarithms; 1 if they do at once, infinite if they never do.

    Examples:
        >>> from specjax.theory import spectral_race
        >>> print(spectral_race.passing(jnp.array([0.5, 0.4]), jnp.array([1.0, 0.2])))
        1.5
    """
    lead = jnp.log(spectral) - jnp.log(gradient)
    ahead = lead < 0
    place = jnp.argmax(ahead, axis=-1)
    after, before = (
        jnp.take_along_axis(lead, jnp.maximum(at, 0)[..., None], axis=-1)[..., 0]
        for at in (place, place - 1)
    )
    # Of `before` after step `place` and `after` one step later, as steps count from one.
    between = place.astype(lead.dtype) + before / jnp.where(place > 0, before - after, 1.0)
    return jnp.where(jnp.any(ahead, axis=-1), jnp.where(place > 0, between, 1.0), jnp.inf)


@checked
def steps_to_pass(
    x: Float[Array, " d"], b: Float[Array, " d"], steps: int = 100, floor: float = 0.0
) -> Float[Array, ""]:
    """K* for errors x in directions of curvature b, each method at its best multiple for every
    number of steps; infinite if it is above `steps`.

    Examples:
        >>> from specjax.theory import spectral_race
        >>> b = jnp.arange(1.0, 65) ** -2
        >>> fresh, warm = jnp.ones(64), (1 - b) ** 256
        >>> [round(float(spectral_race.steps_to_pass(x, b)), 1) for x in (fresh, warm)]
        [1.0, 4.9]
    """
    lengths = SPECTRAL_LENGTHS if floor == 0 else GRADIENT_LENGTHS
    left = (
        gradient_left(x, b, GRADIENT_LENGTHS, steps),
        spectral_left(x, b, lengths, steps, floor),
    )
    # Too long multiples overflow; they are never the best.
    return passing(*(jnp.min(jnp.where(each >= 0, each, jnp.inf), axis=0) for each in left))


@in_float64
@checked
def asymptotic_steps_to_pass(k: ArrayLike, a: ArrayLike) -> Float[Array, "..."]:
    """K* = κ(s) √(a ζ(a) k^s/Γ(s)), s = 1 - 1/a, after k gradient steps on inputs of spectrum
    i^(-a); asymptotic.

    It is within a sixth for K* >= 2, a from 1.5 to 3 and d^a >= 200 k, if c is as near to 2 as it
    is best; of the multiples here, 2^(1/4) apart, only for K* up to some 12.

    Raises:
        ValueError: k <= 0 or a outside (1, 100).

    Examples:
        >>> from specjax.theory import spectral_race
        >>> round(float(spectral_race.asymptotic_steps_to_pass(1024, 2)), 1)
        4.9
    """
    check_in("(0, inf)", k=k)
    check_in("(1, 100)", a=a)
    k, a = floats(k, a)
    s = 1 - 1 / a
    h = jnp.exp(gammaln(s)) / (a * zeta(a, 1.0)) * k**-s
    return _kappa(s) / jnp.sqrt(h)


@jax.jit
@jnp.vectorize
def _kappa(s: Float[Array, ""]) -> Float[Array, ""]:
    """κ(s): the first τ at which the best damping leaves what gradient descent does."""

    def moments(reach: Array) -> tuple[Array, Array]:
        """∫ z^(s-1) (e^(-z) - R)_+^j dz/Γ(s) for j = 1, 2; the integrand ends at e^(-z) = R."""
        end = -jnp.log(jnp.clip(reach, 1e-300, 1.0))
        volume = end**s / jnp.exp(gammaln(s + 1))
        first = gammainc(s, end)
        second = gammainc(s, 2 * end) * 2**-s - 2 * reach * first + reach**2 * volume
        return first - reach * volume, second

    width = _TIMES[1]

    def left(damping: Array) -> Array:
        def slope(state: Array) -> Array:
            noise, reach = state
            return jnp.stack([2 * moments(reach)[0] - damping * noise, 2 * noise])

        def step(state: Array, _: None) -> tuple[Array, Array]:
            state = state + width * slope(state + width / 2 * slope(state))
            return state, 2**s * (moments(state[1])[1] + state[0] ** 2)

        return jax.lax.scan(step, jnp.zeros(2), length=_TIMES.size - 1)[1]

    spectral = jax.vmap(left)(jnp.asarray(_DAMPINGS))
    return jnp.min(passing(jnp.full_like(spectral, _GAIN**-s), spectral)) * width
