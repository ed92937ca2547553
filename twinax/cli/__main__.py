"""`python -m twinax.cli`."""

import sys

from twinax.cli import main

if __name__ == "__main__":
    sys.exit(main())
