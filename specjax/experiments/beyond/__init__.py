"""Experiments on statements of our own; each has a page under docs/beyond."""
