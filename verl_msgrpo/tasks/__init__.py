"""The five tasks as data: from public data sets to verl's rows, and the check of such rows.

Read prepare.py first, the command, and then along the data's way: sources.py (files and the hub),
registry.py (the table of the tasks), readers.py with fields.py and private_tests.py (a raw row
becomes a problem), prompts.py (what the model is asked), rows.py (verl's row and its files), and
selection.py, which puts the stations in a line. check_data.py is the other command; row_checks.py
holds what it, `prepare` and the preflight ask of a row.
"""
