"""``python -m relcore``."""

import sys

from relcore.cli import main

if __name__ == "__main__":
    sys.stdout.reconfigure(errors="backslashreplace")  # a name the terminal cannot show is no reason to break off
    raise SystemExit(main())
