"""Rule-based rewards in the form of verl's `compute_score`.

They are used by path through the files in `reward_fns/`, or as
`pkg://verl_msgrpo.rewards.<task>`, which needs no checkout.

One module is one task: search_qa.py is the shortest, then multiple_choice.py, math_answer.py with
math/, and code_tests.py with code/. All of them read the response by response.py and the row by
ground_truth.py, and return an outcome.py. dispatch.py picks one of them for each row, by the table
in sources.py.
"""
