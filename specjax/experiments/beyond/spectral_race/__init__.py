"""How long gradient steps stay ahead of spectral ones on a linear map: `claim`."""
