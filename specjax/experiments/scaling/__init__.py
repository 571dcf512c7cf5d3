"""Widths and rates of models of specjax: what `specjax scaling` runs."""
