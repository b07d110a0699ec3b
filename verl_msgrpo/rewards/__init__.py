"""Rule-based rewards in the form of verl's `compute_score`.

They are used by path through the files in `reward_fns/`, or as
`pkg://verl_msgrpo.rewards.<task>`, which needs no checkout.
"""
