r"""Whether two mathematical answers are equal, in processes that can be killed.

text.py makes an answer readable for the parser, equal.py compares two of them by math-verify and
rules of our own; it may take for ever, so worker.py is a process that does it with limits, and
pool.py keeps such processes warm. `math_answer` talks to pool.py alone.
"""
