"""``python -m tidegate_analysis``: see `tidegate_analysis.cli`."""

import sys

from tidegate_analysis.cli import main

if __name__ == "__main__":
    sys.exit(main())
