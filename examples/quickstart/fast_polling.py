"""verl's replay buffer, polled often enough for steps that take a second or two."""

from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

POLL_INTERVAL_S = 0.1


class FastPollingReplayBuffer(ReplayBuffer):
    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **{**kwargs, "poll_interval": POLL_INTERVAL_S})
