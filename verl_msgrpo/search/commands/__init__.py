"""The commands of search: they read arguments and call what does the work; nobody imports them.

`verl-msgrpo index` and `serve` are about the server, `episode` shows one rollout in the terminal.
"""
