"""Checks a launch of verl before a GPU is spent: no GPU, no Ray, no weights.

Read settings.py (how one is read, and what a `Problem` is), compose.py (verl's configuration out of
Hydra overrides) and launch.py (what the checks need of it) first. Each further module is one family
of checks: names, layout, estimator, memory, files, reward, services. checks.py runs them all in
order, plan.py shows what they found, command.py is the command.
"""
