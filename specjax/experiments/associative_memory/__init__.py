"""Experiments of the associative-memory paper: capacities of Muon, gradient descent and Newton."""
