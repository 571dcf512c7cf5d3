"""Exact moments of words of Gaussian matrices at every finite size."""

from specjax.moments.expectation import covariance as covariance
from specjax.moments.expectation import expectation as expectation
from specjax.moments.expectation import total_variance as total_variance
from specjax.moments.expectation import variance as variance
from specjax.moments.expression import Expression as Expression
from specjax.moments.haar import haar_covariance as haar_covariance
from specjax.moments.haar import haar_expectation as haar_expectation
from specjax.moments.haar import haar_variance as haar_variance
from specjax.moments.hermite import Hermite as Hermite
from specjax.moments.hermite import hermite as hermite
from specjax.moments.orders import Orders as Orders
from specjax.moments.orders import orders as orders
from specjax.moments.polynomial import Polynomial as Polynomial
from specjax.moments.polynomial import symbol as symbol
from specjax.moments.quotient import Quotient as Quotient
from specjax.moments.traced import of as of
from specjax.moments.words import constant as constant
from specjax.moments.words import diagonal as diagonal
from specjax.moments.words import gaussian as gaussian
from specjax.moments.words import haar as haar
from specjax.moments.words import identity as identity
from specjax.moments.words import matrix_power as matrix_power
from specjax.moments.words import ones as ones
from specjax.moments.words import squared_norm as squared_norm
from specjax.moments.words import trace as trace
