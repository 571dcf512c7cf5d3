"""Matrix functions on arrays `(..., m, n)`.

- Polar factors: `polar`, and its methods `SVD`, `QDWH`, `Newton`, `NewtonSchulz`, `PolarExpress`,
  `Tikhonov`; `method_error` and `factor_error` measure them.
- Polynomials of Newton–Schulz: `Quintic`, `MUON`, `CUBIC`, `CUBIC5`, `PADE`,
  `best_quintic`, `best_composition`, `band`.
- Other functions of the singular values: `spectral_map`, `spectral_power`, `stabilized_sign`,
  `inverse_root`, `row_metric`.
- Norms and ranks: `spectral_norm`, `nuclear_norm`, `schatten_norm`, `stable_rank`, `nuclear_rank`,
  `effective_rank`, `entropy_rank`, and estimates without a decomposition.
- Rows and columns: `normalize_rows`, `normalize_columns`, `direction_error`.
- Diagonal dominance: `dominance_ratio`, `row_dominance`, and means and energies off the diagonal.
"""

from specjax.spectral._dominance import diagonal_mean as diagonal_mean
from specjax.spectral._dominance import dominance_ratio as dominance_ratio
from specjax.spectral._dominance import off_block_energy as off_block_energy
from specjax.spectral._dominance import off_diagonal as off_diagonal
from specjax.spectral._dominance import off_diagonal_coefficient as off_diagonal_coefficient
from specjax.spectral._dominance import off_diagonal_energy as off_diagonal_energy
from specjax.spectral._dominance import off_diagonal_mean as off_diagonal_mean
from specjax.spectral._dominance import row_dominance as row_dominance
from specjax.spectral._dominance import traceless_cosine as traceless_cosine
from specjax.spectral._inverse_roots import inverse_root as inverse_root
from specjax.spectral._normalize import direction_error as direction_error
from specjax.spectral._normalize import normalize_columns as normalize_columns
from specjax.spectral._normalize import normalize_rows as normalize_rows
from specjax.spectral._norms import effective_rank as effective_rank
from specjax.spectral._norms import entropy_rank as entropy_rank
from specjax.spectral._norms import nuclear_norm as nuclear_norm
from specjax.spectral._norms import nuclear_rank as nuclear_rank
from specjax.spectral._norms import schatten_norm as schatten_norm
from specjax.spectral._norms import spectral_norm as spectral_norm
from specjax.spectral._norms import stable_rank as stable_rank
from specjax.spectral._polar_error import PolarError as PolarError
from specjax.spectral._polar_error import factor_error as factor_error
from specjax.spectral._polar_error import method_error as method_error
from specjax.spectral._polynomial_design import CUBIC as CUBIC
from specjax.spectral._polynomial_design import CUBIC5 as CUBIC5
from specjax.spectral._polynomial_design import MUON as MUON
from specjax.spectral._polynomial_design import PADE as PADE
from specjax.spectral._polynomial_design import Quintic as Quintic
from specjax.spectral._polynomial_design import band as band
from specjax.spectral._polynomial_design import best_composition as best_composition
from specjax.spectral._polynomial_design import best_quintic as best_quintic
from specjax.spectral._ranks import estimate_ranks as estimate_ranks
from specjax.spectral._ranks import estimate_stable_rank as estimate_stable_rank
from specjax.spectral._ranks import power_iteration as power_iteration
from specjax.spectral._spectral_functions import spectral_map as spectral_map
from specjax.spectral._spectral_functions import spectral_power as spectral_power
from specjax.spectral._spectral_functions import stabilized_sign as stabilized_sign
from specjax.spectral._sqrt_gram import row_metric as row_metric
from specjax.spectral.methods import QDWH as QDWH
from specjax.spectral.methods import SVD as SVD
from specjax.spectral.methods import AbstractPolar as AbstractPolar
from specjax.spectral.methods import ExactPolar as ExactPolar
from specjax.spectral.methods import Newton as Newton
from specjax.spectral.methods import NewtonSchulz as NewtonSchulz
from specjax.spectral.methods import PolarExpress as PolarExpress
from specjax.spectral.polar import polar as polar
from specjax.spectral.tikhonov import Tikhonov as Tikhonov
