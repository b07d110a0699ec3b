"""Checkpoints of Megatron's distributed optimizer where it wraps torch's own Adam.

Without Transformer Engine and Apex, Megatron Core falls back to torch's Adam, and then cannot load
what it saved: it asks a new Adam for a state that comes only with the first step, and overwrites
the number of steps that it read with that of the new Adam. Nor can it write to parameters in
float32, which have no copy of their own in the optimizer and require gradients.
"""

import functools
from types import ModuleType

import torch


def make_resumable(distrib_optimizer: ModuleType) -> None:
    """Mends all three in `megatron.core.optimizer.distrib_optimizer`."""
    optimizer_class = distrib_optimizer.DistributedOptimizer
    sharded_state_dict = optimizer_class.sharded_state_dict
    load_state_dict = optimizer_class.load_state_dict

    @functools.wraps(sharded_state_dict)
    def with_state(self, model_sharded_state_dict, is_loading=False, **kwargs):
        if is_loading:
            for group in self.optimizer.param_groups:
                for parameter in group["params"]:
                    self.optimizer.state[parameter] = {
                        "step": torch.tensor(0.0),
                        "exp_avg": torch.zeros_like(parameter),
                        "exp_avg_sq": torch.zeros_like(parameter),
                    }
        return sharded_state_dict(self, model_sharded_state_dict, is_loading, **kwargs)

    @functools.wraps(load_state_dict)
    def with_steps(self, state_dict):
        with torch.no_grad():
            load_state_dict(self, state_dict)
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                self.optimizer.state[parameter]["step"] = torch.tensor(float(group["step"]))

    setattr(optimizer_class, "sharded_state_dict", with_state)
    setattr(optimizer_class, "load_state_dict", with_steps)
