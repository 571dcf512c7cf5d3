"""Experiments on the preconditioning paper: convergence of Muon and of its rivals."""
