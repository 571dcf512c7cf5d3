"""`python -m specjax` is the command `specjax`."""

import sys

from specjax.cli import main

if __name__ == "__main__":
    sys.exit(main())
