"""Exact moments of words of Gaussian matrices at every finite size."""

from specjax.moments._expectation import covariance as covariance
from specjax.moments._expectation import expectation as expectation
from specjax.moments._expectation import total_variance as total_variance
from specjax.moments._expectation import variance as variance
from specjax.moments._expression import Expression as Expression
from specjax.moments._haar import haar_covariance as haar_covariance
from specjax.moments._haar import haar_expectation as haar_expectation
from specjax.moments._haar import haar_variance as haar_variance
from specjax.moments._hermite import Hermite as Hermite
from specjax.moments._hermite import hermite as hermite
from specjax.moments._orders import Orders as Orders
from specjax.moments._orders import orders as orders
from specjax.moments._polynomial import Polynomial as Polynomial
from specjax.moments._polynomial import symbol as symbol
from specjax.moments._quotient import Quotient as Quotient
from specjax.moments._traced import of as of
from specjax.moments._words import constant as constant
from specjax.moments._words import diagonal as diagonal
from specjax.moments._words import gaussian as gaussian
from specjax.moments._words import haar as haar
from specjax.moments._words import identity as identity
from specjax.moments._words import matrix_power as matrix_power
from specjax.moments._words import ones as ones
from specjax.moments._words import squared_norm as squared_norm
from specjax.moments._words import trace as trace
