"""A program that this version of specjax cannot read, because JAX spells it in a new way."""

import jax


class UnreadableProgramError(ValueError):
    """JAX spells a program in a way that specjax does not know. A sweep goes on without reading it;
    a layout cannot.

    Attributes:
        what: What cannot be read.
    """

    def __init__(self, what: str, way_out: str = ""):
        remedy = f"install an older JAX, {way_out}" if way_out else "install an older JAX."
        super().__init__(
            f"This version of specjax cannot read {what} of JAX {jax.__version__}; update specjax,"
            f" or {remedy}"
        )
        self.what = what


class UnreadableProgramWarning(UserWarning):
    """A program could not be read, and something that is only an estimate was estimated without
    it.
    """
