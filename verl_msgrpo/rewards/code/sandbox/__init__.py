"""What runs inside a sandbox, on the standard library alone.

supervisor.py is the first process. confine.py takes away what it must not have, then it forks for
each test, and program.py runs the program.
"""
