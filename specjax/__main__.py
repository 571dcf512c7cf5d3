"""`python -m specjax` is the command `specjax`."""

import sys

from specjax.cli import main

sys.exit(main())
