"""One page about one or several runs: what differs, final numbers, curves, trajectories."""
