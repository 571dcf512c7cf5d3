"""The curves xᵇ (log x/x₁)ᶜ that data do not reject, for several units x₁ or corrections."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

LEAST_LOGARITHM = 0.5
"""The smallest power of a logarithm that counts: no data distinguish (log x)^0.001 from 1."""
_LARGEST = 3.0  # the largest power of a logarithm, up or down


@dataclass(frozen=True, eq=False)
class Logarithms:
    """Curves with a power of the logarithm: T² by exponent and power, for each of several shapes.

    It is least at `centers`, where it is `misfits`; `inverses` are the inverse covariances of the
    two. A curve is not rejected if T² is at most `top`.
    """

    misfits: Float[np.ndarray, " shapes"]
    centers: Float[np.ndarray, "shapes 2"]
    inverses: Float[np.ndarray, "shapes 2 2"]
    units: Float[np.ndarray, " shapes"]
    top: float

    def misfit_with(self, exponent: float | None, least: float, *, any_unit: bool = True) -> float:
        """T² of the nearest curve with this or any exponent, and a power of the logarithm from
        `least` to 3.

        The power may be up or down. The unit x₁ of log x/x₁ may be any, or is the first alone.
        """
        return self._nearest(exponent, least, any_unit)[0]

    def curve_with(self, exponent: float, least: float, *, any_unit: bool = True) -> str:
        """That curve in words."""
        _, power, unit = self._nearest(exponent, least, any_unit)
        return in_words(exponent, power, unit)

    def exponents(self) -> tuple[float, float]:
        """The least and the largest exponent of curves with a power of the logarithm up to 3."""
        (bb, bc), (_, cc) = np.moveaxis(self.inverses, 0, -1)
        room = self.top - self.misfits
        inside = room >= 0
        ends = []
        for side in (-1, 1):
            # The power of the logarithm at the end of the ellipse, or the nearest one allowed.
            farthest = -side * bc / cc * np.sqrt(np.where(inside, room, 0) / (bb - bc**2 / cc))
            moved = np.clip(self.centers[:, 1] + farthest, -_LARGEST, _LARGEST) - self.centers[:, 1]
            left = room - (cc - bc**2 / bb) * moved**2
            reach = side * (self.centers[:, 0] - bc / bb * moved) + np.sqrt(
                np.clip(left, 0, None) / bb
            )
            ends.append(side * float(np.max(np.where(left >= 0, reach, -np.inf))))
        nearest = float(self.centers[np.argmin(self.misfits), 0])
        return (ends[0], ends[1]) if np.isfinite(ends).all() else (nearest, nearest)

    def _nearest(
        self, exponent: float | None, least: float, any_unit: bool
    ) -> tuple[float, float, float]:
        (bb, bc), (_, cc) = np.moveaxis(self.inverses, 0, -1)
        nearest = np.inf, np.nan, np.nan
        for side in (-1, 1):
            if exponent is None:
                away, free = None, self.centers[:, 1]
            else:
                away = exponent - self.centers[:, 0]
                free = self.centers[:, 1] - bc / cc * away
            powers = side * np.clip(side * free, least, _LARGEST)
            moved = powers - self.centers[:, 1]
            away = -bc / bb * moved if away is None else away
            misfits = self.misfits + bb * away**2 + 2 * bc * away * moved + cc * moved**2
            misfits = np.where(any_unit | (self.units == self.units[0]), misfits, np.inf)
            place = int(np.argmin(misfits))
            curve = float(misfits[place]), float(powers[place]), float(self.units[place])
            nearest = min(nearest, curve)
        return nearest


def in_words(exponent: float, power: float, unit: float) -> str:
    """xᵇ (log x/x₁)ᶜ with the numbers of a curve."""
    logarithm = "log x" if unit == 1 else f"log({1 / unit:.2g} x)"
    return f"x^{exponent:.3g} ({logarithm})^{power:.2g}"
