"""Experiments of the outer-product paper: E[G Gᵀ] at initialization, its orders, and Muon."""
