"""Experiments on the methods that compute polar factors."""
