"""`verl-msgrpo preflight -- OVERRIDES`: checks a launch of verl without GPU, Ray or weights."""

import argparse
import contextlib
import dataclasses
import gc
import json
from collections.abc import Iterator

from verl_msgrpo.common.numbers import real_argument
from verl_msgrpo.preflight.memory import CARDS, Card


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.description = (
        "Composes verl's configuration with Hydra overrides and checks it: everything that verl "
        "rejects, and what it lets through until a worker fails. Exit code: 0 no errors, 1 errors."
    )
    card = parser.add_mutually_exclusive_group()
    card.add_argument(
        "--gpu", type=str.lower, choices=CARDS, help="compare the memory with this card"
    )
    card.add_argument(
        "--gpu-memory-gib",
        type=real_argument(1, 10_000),
        metavar="N",
        help="compare it with a card of N GiB",
    )
    parser.add_argument("--json", action="store_true", help="print plan and problems as JSON")
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="OVERRIDE",
        help="what follows `python3 -m verl.trainer.main_ppo`",
    )


def run(args: argparse.Namespace) -> int:
    """Prints the plan and the problems."""
    card = _card(args)
    with _without_collection():
        from verl_msgrpo.preflight.checks import preflight
        from verl_msgrpo.preflight.plan import as_text, plan

        found = preflight(args.overrides, card)
    if args.json:
        content = {
            "ok": not found.errors,
            "problems": [dataclasses.asdict(problem) for problem in found.problems],
            "not_checked": found.notes,
            "plan": plan(found),
        }
        print(json.dumps(content, indent=1, default=str))
    else:
        print("\n".join(as_text(found)))
    return 1 if found.errors else 0


@contextlib.contextmanager
def _without_collection() -> Iterator[None]:
    """No search for cyclic garbage, which takes a sixth of the time of verl's import."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _card(args: argparse.Namespace) -> Card | None:
    if args.gpu:
        return Card(args.gpu, CARDS[args.gpu])
    if args.gpu_memory_gib is None:
        return None
    return Card(f"card of {args.gpu_memory_gib:g} GiB", args.gpu_memory_gib)
