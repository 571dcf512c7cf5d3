"""When do spectral gradient updates help? One module per result of the spectral-criterion paper."""
