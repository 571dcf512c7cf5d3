"""The relations that a statement can be about, each with one rule, one interval and its own
attacks.
"""

from specjax.lab.relations._equals import equals as equals
from specjax.lab.relations._growth import grows as grows
from specjax.lab.relations._growth import saturates as saturates
from specjax.lab.relations._inequality import inequality as inequality
from specjax.lab.relations._near import near as near
from specjax.lab.relations._relation import Relation as Relation
from specjax.lab.relations._scales_as import scales_as as scales_as
from specjax.lab.relations._threshold import above as above
from specjax.lab.relations._threshold import ahead as ahead
from specjax.lab.relations._threshold import below as below
from specjax.lab.relations._threshold import fraction as fraction
from specjax.lab.relations._within_grid import within_grid as within_grid
from specjax.lab.relations._zero_error import zero_error as zero_error
from specjax.lab.relations.limits import bounded as bounded
from specjax.lab.relations.limits import settles as settles
from specjax.lab.relations.limits import vanishes as vanishes
