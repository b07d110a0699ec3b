"""Runs a worker of this folder in one process or in several that gloo joins.

    python ranks.py engine_worker FOLDER

The module's `main(folder)` calls `in_ranks`. This file imports nothing heavy at its head: for each
checkpoint Megatron starts a process that imports the main script anew.
"""

import argparse
import faulthandler
import importlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

DEADLINE_S = 3600  # for all that one rank does, most of it within a minute


def _rank(rank: int, count: int, store: Path, function: Callable[..., None], *args: object) -> None:
    import torch

    # A rank that waits for another one for ever says where, and ends; then the others are ended.
    faulthandler.dump_traceback_later(DEADLINE_S, exit=True)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(count))
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=count
    )
    function(*args)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def in_ranks(count: int, function: Callable[..., None], *args: object) -> None:
    """Calls the function in `count` ranks, forked so that they need not import again."""
    from torch.multiprocessing import start_processes

    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        start_processes(_rank, (count, store, function, *args), nprocs=count, start_method="fork")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("worker")
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    importlib.import_module(args.worker).main(args.folder)


if __name__ == "__main__":
    main()
