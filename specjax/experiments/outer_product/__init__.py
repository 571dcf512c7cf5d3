"""The outer-product paper: E[G Gᵀ] at Gaussian initialization, its orders in the width, and what
follows for Muon.
"""
