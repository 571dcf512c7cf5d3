"""Widths and rates: which updates and which optimal rates follow the width, in a perceptron whose exponents are known."""
