"""Which quantity at the start of a training predicts how much faster spectral steps will be."""
