"""Experiments on the preconditioning paper: convergence of Muon without a condition number, and of
its rivals with one.
"""
