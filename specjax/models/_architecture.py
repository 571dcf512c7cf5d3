"""The options of a transformer, and the architecture of spectral-criterion, Figure 19."""

from dataclasses import dataclass

from specjax.models.mlp import GATED
from specjax.sizes import AnySize, Size, padded, times
from specjax.theory.activations import ACTIVATIONS


@dataclass(frozen=True)
class Architecture:
    """Sizes and choices of a transformer.

    Args:
        vocabulary: Tokens.
        width: d, the residual stream; a `Size` where it is swept, with one head.
        context: The longest sequence if positions are learned.
        blocks: The number of blocks.
        heads: Heads of every attention, a divisor of the width.
        activation: σ of the perceptrons, a name of `theory.activations` or "swiglu"; None for
            attention only.
        expansion: Hidden units of a perceptron over d.
        tied: Whether the head is the embedding, over √d.
        project: Whether attention has W_O; without it the heads' values are added to the stream as
            they are.
        rotary: Whether rotary positions of queries and keys (`rotated`) replace learned positions.
        qk_norm: Whether queries and keys are RMS-normalized in every head, before rotation.
        value_tables: The number t of value-embedding tables: the first t blocks use them, and so do
            the last t. With t > 0, the values of every block are λ W_V A + λ' E'[tokens], with two
            numbers trained from 1/2 and E' = 0 in between.
        skips: Whether block L - 1 - k adds the output of block k < L/2 to its input, times a number
            trained from 1.
        zero_outputs: Whether W_O, W_2 and the head start at zero.
        cap: Logits z become cap · tanh(z/cap); None leaves them.

    Raises:
        ValueError: sizes below 1, heads that do not divide the width, several heads or rotary
            positions of a `Size`, rotary positions in heads of a size that 4 does not divide, value
            tables for more than all blocks, skips in an odd number of blocks, outputs that start at
            zero without W_O or with a tied head, a cap that is not positive, or an unknown
            activation.

    """

    vocabulary: int
    width: AnySize
    context: int
    blocks: int = 2
    heads: int = 1
    activation: str | None = "relu"
    expansion: int = 4
    tied: bool = False
    project: bool = True
    rotary: bool = False
    qk_norm: bool = False
    value_tables: int = 0
    skips: bool = False
    zero_outputs: bool = False
    cap: float | None = None

    def __post_init__(self) -> None:
        counts = (
            self.vocabulary,
            self.context,
            self.blocks,
            self.heads,
            self.expansion,
            padded(self.width),
        )
        if min(counts) < 1:
            raise ValueError(f"All sizes of a transformer must be at least 1, got {self}.")
        if isinstance(self.width, Size):
            if self.heads != 1:
                raise ValueError(
                    f"A width that is swept as a Size needs heads=1, got {self.heads}; sweep it by"
                    " values."
                )
        elif self.width % self.heads:
            raise ValueError(
                f"The heads must divide the width, got heads={self.heads} and width={self.width}."
            )
        if (
            self.activation is not None
            and self.activation not in ACTIVATIONS
            and self.activation not in GATED
        ):
            known = ", ".join([*ACTIVATIONS, *GATED])
            raise ValueError(
                f"There is no activation {self.activation!r}; there are None, {known}."
            )
        self._check_options()

    def _check_options(self) -> None:
        if self.rotary and (isinstance(self.width, Size) or self.width // self.heads % 4):
            raise ValueError(
                "Rotary positions need heads of a size that 4 divides and is an int, got"
                f" heads={self.heads} and width={self.width}."
            )
        if not 0 <= 2 * self.value_tables <= self.blocks:
            raise ValueError(
                "A value table serves one of the first and one of the last blocks, got"
                f" {self.value_tables} for {self.blocks} blocks."
            )
        if self.skips and self.blocks % 2:
            raise ValueError(
                f"Skips join the blocks in pairs, got {self.blocks} blocks; make them even."
            )
        if self.zero_outputs and (self.tied or not self.project):
            raise ValueError(
                "Outputs that start at zero need W_O and a head of its own: project=True and"
                " tied=False."
            )
        if self.cap is not None and not self.cap > 0:
            raise ValueError(f"The cap on the logits must be positive, got {self.cap}.")

    @property
    def hidden(self) -> AnySize:
        """Hidden units of a perceptron."""
        return times(self.width, self.expansion)


def figure_19(
    vocabulary: int, width: int, context: int, blocks: int = 12, heads: int = 6
) -> Architecture:
    """The architecture of spectral-criterion, Figure 19, at any size.

    There is one value table for every four blocks, and logits are capped at 15. Attention has the
    scale 1/√(head size), as all transformers here; the snapshot has 1.36 times this, 0.12 with
    heads of 128.

    Raises:
        ValueError: as `Architecture`.

    """
    return Architecture(
        vocabulary,
        width,
        context,
        blocks,
        heads,
        "relu_squared",
        rotary=True,
        qk_norm=True,
        value_tables=blocks // 4,
        skips=True,
        zero_outputs=True,
        cap=15.0,
    )
