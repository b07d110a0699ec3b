"""Reward for programming: the last Python block of the response, run on the row's tests.

    reward.custom_reward_function.path=reward_fns/code_tests.py
    +reward.custom_reward_function.reward_kwargs.partial=True

acc    1 if the program passes all tests
score  (1 - format_bonus) * acc + format_bonus * format_ok, between 0 and 1; with partial=True the
       share of tests passed takes the place of acc: 1 of 2 tests is 0, or 0.5 with partial=True

Keys, the same on every path: score, acc, passed (the share), format_ok (there is a closed Python
block), truncated, timeout, error, pred.

The ground truth is a JSON string: {"tests": [{"input": "1 2", "output": "3", "testtype": "stdin"}],
"fn_name": null}. Functional tests call fn_name, with one JSON value a line as arguments.
{"inputs": [...], "outputs": [...], "fn_name": ...} and the other published forms are read too.

reward_kwargs (default):
    partial (False)          score by the share of tests passed
    format_bonus (0.0)       share of the score for a program in a block, right or wrong
    timeout_s (10.0)         seconds that a program may take for all tests together; for numbers as
                             LiveCodeBench's own checker gives them, 6 times the number of tests
    memory_limit_mb (1024)   MiB that each process may address, and all of a program may use
    isolation ("auto")       bubblewrap; where it does not work no program is run (error = 1).
                             "limits" runs them under resource limits alone, which is not safe
    workers (4, or the cores if fewer)  programs at once, per process that scores
    observation_tags         names of the tags around observations ([tool_response, information])
    sandbox_fusion_url       a Sandbox Fusion server to run programs on instead. verl does not hand
                             its own setting on to a custom reward function; this line does:
        '+reward.custom_reward_function.reward_kwargs.sandbox_fusion_url=${reward.sandbox_fusion.url}'

Programs are isolated by bubblewrap: apt install bubblewrap, or dnf install bubblewrap. It needs
user namespaces, or root with CAP_SYS_ADMIN; Docker's default profile allows neither (run with
--cap-add SYS_ADMIN --security-opt seccomp=unconfined --security-opt apparmor=unconfined).

The rules in full: verl_msgrpo/rewards/code_tests.py, code/isolation.py and code/cases.py.
"""

from verl_msgrpo.rewards.code_tests import compute_score

__all__ = ["compute_score"]
