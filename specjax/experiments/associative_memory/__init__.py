"""The experiments of the associative-memory paper: capacity exponents of Muon, gradient descent and
Newton's method.
"""
