"""What only the reward for programs needs.

cases.py reads the tests of a row, isolation.py says how a program is kept apart from the machine,
runner.py runs it in a sandbox on this machine and fusion.py on a server. sandbox/ is what runs
inside, mounted into the sandbox by itself.
"""
