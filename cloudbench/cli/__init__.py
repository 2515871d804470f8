"""The command line: reads arguments, calls the rest, prints.

Results go to standard output, everything else to standard error. Only this package prints or reads the environment.
Each command lives in a module of its own, which imports nothing heavy before it is called: `--help` is instant.
"""

from __future__ import annotations

import errno
import importlib
import os
import signal
import sys
from types import FrameType
from typing import NoReturn

import click

_COMMANDS = {
    "submit": "submit",
    "run": "experiment",
    "status": "status",
    "logs": "logs",
    "collect": "manage",
    "cancel": "manage",
    "resume": "manage",
    "summary": "summary",
    "parse": "parse",
    "templates": "templates",
    "doctor": "doctor",
    "rehearse": "rehearse",
    "completion": "completion",
}
"""Module of each command, in the order of the help."""


_CANNOT_WRITE = (errno.EBADF, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOSPC)


class _Commands(click.Group):
    """Imports a command's module when the command, or its line of help, is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(f"cloudbench.cli.{_COMMANDS[cmd_name]}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in _COMMANDS and not args[0].startswith("-"):
            from cloudbench.errors import did_you_mean

            ctx.fail(f"No such command {args[0]!r}{did_you_mean(args[0], _COMMANDS) or '.'}")
        return super().resolve_command(ctx, args)


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""\b
Examples:
  cloudbench submit --nodes 2 --set model=resnet20 --set batch_size=32
  cloudbench run experiment.yaml
  cloudbench summary examples/dsvm-vs-batchai

Exit codes: 0 done, 2 usage or specification, 3 credentials, 4 quota, capacity or retired size,
5 the job failed, 6 time or cost limit, 7 preempted, 130 interrupted.""",
)
@click.version_option(package_name="cloudbench", message="%(prog)s %(version)s")
def cli() -> None:
    """Which GPU setup trains my model fastest, for what money, and is the difference real?"""


def main() -> NoReturn:
    """Run the command line and end the process with its exit code."""
    signal.signal(signal.SIGTERM, _interrupt)
    if sys.stdout is None:
        click.echo("cloudbench: standard output is closed", err=True)
        sys.exit(1)
    sys.exit(_outcome())


def _outcome() -> int:
    """Run the command that the arguments name; its exit code."""
    from cloudbench.errors import CloudbenchError

    try:
        code = cli.main(prog_name="cloudbench", standalone_mode=False)
    except CloudbenchError as error:
        click.echo(f"cloudbench: {error}", err=True)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return 2
    except (KeyboardInterrupt, click.Abort) as error:
        interrupt = error.__cause__ if isinstance(error, click.Abort) else error  # click raises Abort in its place
        click.echo(f"cloudbench: {str(interrupt or '') or 'interrupted'}", err=True)
        return 130
    except BrokenPipeError:
        # Whoever read our output has seen enough. Python would complain of it once more while it ends.
        sys.stderr.close()
        return 141
    except OSError as error:
        if error.errno not in _CANNOT_WRITE or error.filename is not None:
            raise
        click.echo(f"cloudbench: standard output cannot be written: {error.strerror}", err=True)
        # What could not be written is still buffered, and Python would try it once more while it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code if isinstance(code, int) else 0


def _interrupt(signal_number: int, frame: FrameType | None) -> None:
    """SIGTERM ends a command as Ctrl-C does: what runs is stopped, collected and released."""
    raise KeyboardInterrupt(f"interrupted by {signal.Signals(signal_number).name}")
