"""In-context linear regression by a layer of linear attention: prompts and quadratic objective.

Fixed inputs x_1, ..., x_N with covariance S = (1/N) Σ x_i x_iᵀ, a task w with mean 0 and covariance
I, labels y_i = w·x_i, and a query drawn uniformly from the inputs. The prompt is [[x_1 … x_N, x_q],
[y_1 … y_N, 0]]; attention without softmax predicts by the bottom right entry, wᵀ S Q x_q. Its
expected squared error is ‖(S Q - I) S^{1/2}‖_F² (preconditioning, Section 2.2 and Appendix D).
"""

import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from specjax.models.targets import check_symmetric, check_target
from specjax.sizes import AnySize, normal


def init(d: int) -> Float[Array, "d d"]:
    """Q_0 = 0, the start of Theorem 3."""
    return jnp.zeros((d, d))


def covariance(inputs: Float[Array, "d n"]) -> Float[Array, "d d"]:
    """S = (1/N) Σ x_i x_iᵀ of the inputs in the columns (eq. 19)."""
    return inputs @ inputs.T / inputs.shape[1]


def loss(q: Float[Array, "d d"], s: Float[Array, "d d"]) -> Float[Array, ""]:
    """½ ‖(S Q - I) S^{1/2}‖_F² = ½ tr((S Q - I)ᵀ (S Q - I) S), half the expected squared error of
    the prompts (eq. 20).

    The minimum 0 is at Q = S⁻¹, and the Hessian has condition number κ(S)³ (eq. 21). Raises
    ValueError for an S of another shape than Q, not symmetric, or not finite.
    """
    residual = _residual(q, s)
    return jnp.sum(residual * (residual @ s)) / 2


def gradient(q: Float[Array, "d d"], s: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """S (S Q - I) S, exact (eq. 70). Raises as `loss`."""
    return s @ _residual(q, s) @ s


def prompt(
    inputs: Float[Array, "d n"], labels: Float[Array, " n"], query: Float[Array, " d"]
) -> Float[Array, "features tokens"]:
    """E = [[x_1 … x_N, x_q], [y_1 … y_N, 0]], one token in each column (eq. 174)."""
    tokens = jnp.concatenate([inputs, query[:, None]], axis=1)
    last = jnp.concatenate([labels, jnp.zeros((1,), labels.dtype)])
    return jnp.concatenate([tokens, last[None, :]], axis=0)


def linear_attention(
    tokens: Float[Array, "features tokens"], q: Float[Array, "d d"]
) -> Float[Array, "features tokens"]:
    """W^V E (Eᵀ W^{KQ} E) / N without softmax, W^V = diag(0, 1), W^{KQ} = diag(Q, 0) (eq. 175)."""
    d, n = q.shape[0], tokens.shape[1] - 1
    value = jnp.zeros((d + 1, d + 1), q.dtype).at[d, d].set(1)
    key_query = jnp.zeros((d + 1, d + 1), q.dtype).at[:d, :d].set(q)
    return value @ tokens @ (tokens.T @ key_query @ tokens) / n


def prediction(tokens: Float[Array, "features tokens"], q: Float[Array, "d d"]) -> Float[Array, ""]:
    """The bottom right entry of the attention's output: wᵀ S Q x_q (eq. 176)."""
    return linear_attention(tokens, q)[-1, -1]


def draw_tasks(key: Key[Array, ""], tasks: AnySize, d: int) -> Float[Array, "tasks d"]:
    """Tasks w in rows, N(0, 1) entries; only their mean 0 and covariance I matter."""
    return normal(key, (tasks, d))


def sampled_loss(
    q: Float[Array, "d d"], inputs: Float[Array, "d n"], tasks: Float[Array, "tasks d"]
) -> Float[Array, ""]:
    """½ mean of (prediction - w·x_q)² over tasks and all queries; unbiased for `loss` at S."""
    labels = tasks @ inputs
    # The answers wᵀ S Q x_q without building the prompts; `prediction` computes the same one by
    # one.
    answers = (labels @ inputs.T / inputs.shape[1]) @ q @ inputs
    return jnp.mean((answers - labels) ** 2) / 2


def _residual(q: Array, s: Array) -> Array:
    check_target(s, q.shape, "The covariance of in-context regression")
    check_symmetric(s, "The covariance of in-context regression")
    return s @ q - jnp.eye(q.shape[0], dtype=q.dtype)
