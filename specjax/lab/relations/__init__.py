"""The closed list of relations that a statement can be about, each with one rule, one interval and
one way to be attacked.
"""

from specjax.lab.relations.always import always as always
from specjax.lab.relations.ends import bounded as bounded
from specjax.lab.relations.ends import grows as grows
from specjax.lab.relations.ends import saturates as saturates
from specjax.lab.relations.ends import settles as settles
from specjax.lab.relations.ends import vanishes as vanishes
from specjax.lab.relations.equals import equals as equals
from specjax.lab.relations.identity import identity as identity
from specjax.lab.relations.near import near as near
from specjax.lab.relations.relation import Relation as Relation
from specjax.lab.relations.scales_as import scales_as as scales_as
from specjax.lab.relations.sides import above as above
from specjax.lab.relations.sides import ahead as ahead
from specjax.lab.relations.sides import below as below
from specjax.lab.relations.sides import happens as happens
from specjax.lab.relations.within_grid import within_grid as within_grid
