"""Parses the paths on a test's command line."""

import argparse
import sys


def parse(*names):
    """Removes --NAME PATH for each name from sys.argv, and returns the paths. unittest parses the rest."""
    parser = argparse.ArgumentParser()
    for name in names:
        parser.add_argument(f"--{name}", required=True)
    options, rest = parser.parse_known_args()
    sys.argv[1:] = rest
    return options
