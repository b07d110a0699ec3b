"""Small jobs that several packages share, each with one rule.

json_lines.py and parquet.py read rows in bounded memory, row_keys.py takes verl's row keys apart,
numbers.py checks numbers (from users, from files), text.py makes text that can be encoded and
compared, once.py warns once. None of them imports another package of ours.
"""
