"""Two repairs of verl's process groups where the device itself is the CPU."""

import functools
from types import ModuleType

import torch


def use_plain_gloo(distributed: ModuleType) -> None:
    """Makes `verl.utils.distributed` ask for "gloo".

    verl builds the backend as "cpu:gloo,<device>:<backend>"; with the CPU as the device that names
    "cpu" twice, and torch refuses it.
    """
    initialize = distributed.initialize_global_process_group_ray

    @functools.wraps(initialize)
    def initialize_over_gloo(timeout_second: int | None = None, backend: str | None = None) -> None:
        initialize(timeout_second, backend or "gloo")

    setattr(distributed, "initialize_global_process_group_ray", initialize_over_gloo)


def average_over_gloo(distributed: ModuleType) -> None:
    """Lets `torch.distributed.all_reduce` average, as verl's loss does: gloo has no AVG."""
    all_reduce = distributed.all_reduce

    @functools.wraps(all_reduce)
    def all_reduce_with_average(
        tensor: torch.Tensor,
        op: object = distributed.ReduceOp.SUM,
        group: object = None,
        async_op: bool = False,
    ) -> object:
        if op != distributed.ReduceOp.AVG or async_op:
            return all_reduce(tensor, op, group, async_op)
        all_reduce(tensor, distributed.ReduceOp.SUM, group)
        tensor.div_(distributed.get_world_size(group))
        return None

    setattr(distributed, "all_reduce", all_reduce_with_average)
