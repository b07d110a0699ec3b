"""Types of command line arguments, for argparse."""

import argparse


def positive(text: str) -> int:
    """Reads a whole number of at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return number
