"""Matrix functions on arrays `(..., m, n)`.

- Polar factors: `polar`, and its methods `SVD`, `QDWH`, `Newton`, `NewtonSchulz`, `PolarExpress`,
  `Tikhonov`. `polar_error` measures them, and `polynomials` has and designs the coefficients of
  Newton–Schulz (`MUON`, `CUBIC`, `best_quintic`, …).
- Other functions of the singular values: `spectral_map`, `spectral_power`, `stabilized_sign`,
  `inverse_root`, `row_metric`.
- Norms and ranks: `spectral_norm`, `nuclear_norm`, `schatten_norm`, `stable_rank`, `nuclear_rank`,
  `effective_rank`, `entropy_rank`, and estimates without a decomposition.
- Rows and columns: `normalize_rows`, `normalize_columns`, `direction_error`.
- Diagonal dominance: `dominance_ratio`, `row_dominance`; `dominance` has means and energies off
  the diagonal.
"""

from specjax.spectral import dominance as dominance
from specjax.spectral import polar_error as polar_error
from specjax.spectral import polynomials as polynomials
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
from specjax.spectral._ranks import estimate_ranks as estimate_ranks
from specjax.spectral._ranks import estimate_stable_rank as estimate_stable_rank
from specjax.spectral._ranks import power_iteration as power_iteration
from specjax.spectral._spectral_functions import spectral_map as spectral_map
from specjax.spectral._spectral_functions import spectral_power as spectral_power
from specjax.spectral._spectral_functions import stabilized_sign as stabilized_sign
from specjax.spectral._sqrt_gram import row_metric as row_metric
from specjax.spectral.dominance import dominance_ratio as dominance_ratio
from specjax.spectral.dominance import row_dominance as row_dominance
from specjax.spectral.methods import QDWH as QDWH
from specjax.spectral.methods import SVD as SVD
from specjax.spectral.methods import Newton as Newton
from specjax.spectral.methods import NewtonSchulz as NewtonSchulz
from specjax.spectral.methods import PolarExpress as PolarExpress
from specjax.spectral.polar import polar as polar
from specjax.spectral.tikhonov import Tikhonov as Tikhonov
