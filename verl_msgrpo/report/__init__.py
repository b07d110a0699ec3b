"""One page about one or several runs: what differs, final numbers, curves, trajectories.

Read in this order:

    runs            a run as its files tell it: metrics by step, settings
    methods         runs that differ in their seed only are one method; what else differs is named
    curves          which metrics are shown, and their curves over seeds
    final_numbers   where the runs ended, with intervals over seeds
    figures         the pictures
    trajectories    the best and the worst rollouts, and who wrote what in them
    page            all of it as HTML
    command         `verl-msgrpo report`
"""
