"""Experiments on statements that no paper has: each has a page of its own under docs/beyond."""
