"""E[g gᵀ] of a two-layer ReLU network for gradients g at one input x ~ N(0, I), by `moments`.

A batch of n independent inputs has the gradient Ĝ, the mean of their g = (r hᵀ, …), and E[Ĝ Ĝᵀ] is
E[G Gᵀ] + (E[g gᵀ] - E[G Gᵀ])/n with the exact gradient G of `specjax.theory.relu_network`. [ours]

Averaging g gᵀ over W_2 leaves words that are even in the input w_a·x of every unit, except h_a h_c
off the diagonal, and the sign of w_a·x is independent of its size. So if s of the d_1 units are
active, these averages are those of a linear network of s units, from `specjax.moments`; s is the
number of heads of d_1 fair coins. All are exact at every size, in d0, d1, d2 and the target Phi of
shape (d2, d0).
"""

from functools import cache, reduce
from operator import add

from specjax import moments

_X = moments.gaussian("x", "d0", 1)
_W2 = moments.gaussian("W2", "d2", "s")
_HIDDEN = moments.gaussian("W1", "s", "d0") @ _X
_TARGET = moments.constant("Phi", "d2", "d0") @ _X
_RESIDUAL = _W2 @ _HIDDEN - _TARGET


@cache
def outer_product_2() -> moments.Expression:
    """E[g_2 g_2ᵀ], of shape (d2, d2): d_0 (d_0 + 2) d_1 (d_1 + 5)/4 I + d_1 (d_0 + 2)/2 Φ Φᵀ."""
    gradient = _RESIDUAL @ _HIDDEN.T
    return _average_units(moments.expectation(gradient @ gradient.T))


@cache
def diagonal_1() -> moments.Expression:
    """E[(g_1 g_1ᵀ)_aa]: d_0 (d_0 + 2) [d_2 (d_2 + 1)/2 + d_2 (d_1 + 1)/4] + (d_0 + 2) ‖Φ‖_F²/2."""
    gradient = _W2.T @ _RESIDUAL @ _X.T
    return _average_units(moments.expectation(moments.squared_norm(gradient))) / moments.symbol(
        "d1"
    )


@cache
def off_diagonal_1() -> moments.Expression:
    """E[(g_1 g_1ᵀ)_ac] for a != c, a scalar: d_2 (d_2 + 1) d_0 (d_0 + 2)/2π, with the scale "pi".

    The average over W_2 is a multiple of h_a h_c ‖x‖², and that of h_a h_c over W_1 is ‖x‖²/2π.
    """
    hidden = moments.constant("h", "s", 1)
    pulled = _W2.T @ (_W2 @ hidden - _TARGET)
    (multiple,) = moments.expectation((pulled @ pulled.T)[0, 1], over="W2").terms.values()
    fourth = moments.expectation(moments.squared_norm(_X) ** 2)
    return fourth * multiple / (2 * moments.symbol("pi"))


def _average_units(word: moments.Expression) -> moments.Expression:
    """Average over s, whose first two moments are d_1/2 and d_1 (d_1 + 1)/4."""
    d1 = moments.symbol("d1")
    mean = (1, d1 / 2, d1 * (d1 + 1) / 4)
    return reduce(add, (part * mean[int(power)] for power, part in moments.orders(word, "s").parts))
