"""Checks a launch of verl before a GPU is spent: no GPU, no Ray, no weights.

`compose.py` builds verl's own configuration out of Hydra overrides, `run.py` reads from it what the
checks need, each further module holds one family of checks, `report.py` runs them all.
"""
