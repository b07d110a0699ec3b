"""The `verl-msgrpo` command: one sub-command a module, imported only when it is called."""

import argparse
import importlib
import sys
from collections.abc import Sequence

from verl_msgrpo import __version__
from verl_msgrpo.errors import UserError

# name -> (module with `add_arguments(parser)` and `run(args) -> exit code`, one-line help)
COMMANDS: dict[str, tuple[str, str]] = {
    "index": ("verl_msgrpo.search.commands.index", "build a search index from a corpus"),
    "serve": ("verl_msgrpo.search.commands.serve", "serve passages with Search-R1's protocol"),
    "episode": ("verl_msgrpo.search.commands.episode", "run one search rollout in the terminal"),
    "evaluate": ("verl_msgrpo.evaluation.command", "avg@k, pass@k and maj@k of scored samples"),
    "report": ("verl_msgrpo.report.command", "one page about one or several training runs"),
    "prepare": ("verl_msgrpo.tasks.prepare", "write a task's data as verl's rows"),
    "check-data": ("verl_msgrpo.tasks.check_data", "check rows before verl trains on them"),
    "preflight": ("verl_msgrpo.preflight.command", "check a launch of verl before a GPU is spent"),
    "doctor": ("verl_msgrpo.doctor", "check this installation and name the line that fixes it"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one sub-command; user errors end in one line on stderr and exit code 2."""
    argv = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(prog="verl-msgrpo", description="Multi-Scale GRPO for verl.")
    parser.add_argument("--version", action="version", version=f"verl-msgrpo {__version__}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    called = next((word for word in argv if not word.startswith("-")), None)
    for name, (module_name, summary) in COMMANDS.items():
        subparser = subparsers.add_parser(name, help=summary, description=summary)
        if name == called:
            module = importlib.import_module(module_name)
            module.add_arguments(subparser)
            subparser.set_defaults(run=module.run)
    args = parser.parse_args(argv)
    try:
        return args.run(args)
    except UserError as error:
        print(f"verl-msgrpo {args.command}: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # `verl-msgrpo ... | head`
        return 0


if __name__ == "__main__":
    raise SystemExit(main())
