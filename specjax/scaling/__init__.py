"""How a model trains as its width grows: whether its learning rate transfers, and which of its
updates grow or vanish.

With a user's `build`, `loss` and `sample`:

    found = scaling.transfer(
        build, loss, optax.adam,
        widths=(32, 64, 128), rates=(1e-3, 2e-3, 4e-3), batch=sample, steps=200,
    )
    check = scaling.coordinate_check(
        build, loss, optax.adam, rate=1e-3, widths=(32, 64, 128, 256), batch=sample, steps=3
    )

Both train the model at every width and return verdicts.
"""

from specjax.scaling._coordinate_check import CoordinateCheck as CoordinateCheck
from specjax.scaling._coordinate_check import Row as Row
from specjax.scaling._coordinate_check import coordinate_check as coordinate_check
from specjax.scaling._transfer import Transfer as Transfer
from specjax.scaling._transfer import transfer as transfer
