"""The tests, and the checker of argument types and shapes that they run under."""

from beartype import BeartypeConf, BeartypeStrategy, beartype

checked = beartype(conf=BeartypeConf(strategy=BeartypeStrategy.On))
"""Every entry of a container is checked; `addopts` has it by this name, since jaxtyping's option
takes one package alone beside a checker with parentheses.
"""
