"""Errors and warnings about programs that this version of specjax cannot read."""

import jax


class UnreadableProgramError(ValueError):
    """JAX spells a program in an unknown way. A sweep continues without reading it; a layout
    cannot.

    Attributes:
        what: The unreadable part.
    """

    def __init__(self, what: str, way_out: str = ""):
        remedy = f"install an older JAX, {way_out}" if way_out else "install an older JAX."
        super().__init__(
            f"This version of specjax cannot read {what} of JAX {jax.__version__}; update specjax,"
            f" or {remedy}"
        )
        self.what = what


class UnreadableProgramWarning(UserWarning):
    """A program could not be read, and an estimate was made without it."""
