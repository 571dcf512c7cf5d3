"""Widths and learning rates of specjax's models, as run by `specjax scaling`."""
