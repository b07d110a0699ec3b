"""The error that a command line shows in one line, without a traceback."""


class UserError(Exception):
    """Bad input from the user: the message says what is wrong, where, and what to do."""
