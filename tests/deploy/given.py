"""The paths that a test is given on its command line."""

import argparse
import sys


def take(*names):
    """Takes --NAME=PATH for each out of sys.argv, and leaves the rest to unittest."""
    parser = argparse.ArgumentParser()
    for name in names:
        parser.add_argument(f"--{name}", required=True)
    options, rest = parser.parse_known_args()
    sys.argv[1:] = rest
    return options
