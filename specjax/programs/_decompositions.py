"""Matrix decompositions in programs: the operations that a CPU hands to LAPACK."""

from specjax.programs._program import Program

DECOMPOSITIONS = frozenset(
    """
    cholesky eig eigh ffi_call geqp3 geqrf hessenberg householder_product lu ormqr qr schur svd
    triangular_solve tridiagonal tridiagonal_solve
    """.split()  # noqa: SIM905  (a list would have a line for each)
)
"""The primitives that jaxlib hands to LAPACK on a CPU, and foreign calls, which may do so too."""


def decomposes(program: Program) -> bool:
    """Whether a program hands matrices to LAPACK on a CPU, also in a loop, a branch or a call."""
    return any(
        equation.name in DECOMPOSITIONS or any(map(decomposes, equation.bodies))
        for equation in program.equations
    )
