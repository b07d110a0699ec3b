"""Multi-Scale GRPO, the method. Needs torch and numpy, and knows nothing of verl.

Three files say all of it; read them in this order:

    reference.py    the formula, as a person would write it down
    advantages.py   rewards in, advantages out: the way of the data
    exact.py        the derivation that makes the average over all subgroups cheap, and its sum

What they use: config.py (the settings), scales.py (which subgroup sizes), groups.py (rows become
groups; which rewards are equal), exact_tiles.py (exact.py's sum for many terms), diverse.py (a few
subgroups per scale). metrics.py and design_noise.py say what was done to the rewards of a batch.
"""
