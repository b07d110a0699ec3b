"""The five tasks as data: from public data sets to verl's rows, and the check of such rows.

Read registry.py first, the table of the tasks. Then follow a row: sources.py (files and the hub),
readers.py and fields.py (a raw row becomes a problem), selection.py (which problems are kept),
prompts.py (what the model is asked), rows.py (verl's row and its files). prepare.py is the command
that joins them. check_data.py is the other command; row_checks.py says what it, `prepare` and the
preflight need of a row.
"""
