"""The page of all commands, as their ``--help`` has them, and the table of all exit codes, from where the code has them."""

import ast
import inspect
from collections.abc import Iterator
from itertools import pairwise

import click

from streaming.cli.commands import GROUPS, main
from streaming.process import exits

_WIDTH = 110
"""Columns of the help on the page, whatever terminal it is written in."""

_HEAD = """\
# Commands

<!-- Written by `python -m deploy.docs`; edit the commands, not this page. -->

For whoever calls trimtab, by hand or from a script. Afterwards you know every command with its options, and what its exit code says.
Each command prints the same with `--help`.

"""

_CODES_HEAD = """\
## Exit codes

Where a code says something special of one command, the help of that command says what.

| code | meaning | under systemd | with `when_refused = "stay"` |
|---|---|---|---|
"""

_ENDS_ONLY_COMMANDS = {exits.INFEASIBLE, exits.NOT_ACKNOWLEDGED, exits.NOT_FOUND, exits.PARTIAL}
"""Codes that no program has that a supervisor starts."""


def render_commands() -> str:
    """The page."""
    root = _root()
    return f"{_HEAD}{_block(root)}\n{_CODES_HEAD}{''.join(_code_rows())}{''.join(_chapters(root))}"


def _root() -> click.Context:
    return click.Context(
        main, info_name="trimtab", terminal_width=_WIDTH, max_content_width=_WIDTH, **main.context_settings
    )


def walk() -> Iterator[click.Context]:
    """Every command, each before those below it."""
    yield from _walk(_root())


def _walk(context: click.Context) -> Iterator[click.Context]:
    yield context
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            command = context.command.get_command(context, name)
            assert command is not None
            yield from _walk(click.Context(command, info_name=name, parent=context))


def _block(context: click.Context) -> str:
    return f"```text\n{context.get_help()}\n```\n"


def _chapters(root: click.Context) -> Iterator[str]:
    for title, places in GROUPS.items():
        yield f"\n## {title}\n"
        for name in places:
            command = main.get_command(root, name)
            assert command is not None
            for context in _walk(click.Context(command, info_name=name, parent=root)):
                yield f"\n### {context.command_path}\n\n{_block(context)}"


def _code_rows() -> Iterator[str]:
    for code, meaning in sorted(codes().items()):
        yield f"| {code} | {meaning} | {_under_systemd(code)} | {_when_it_stays(code)} |\n"


def codes() -> dict[int, str]:
    """What the string below each code says."""
    codes: dict[int, str] = {}
    for assigned, below in pairwise(ast.parse(inspect.getsource(exits)).body):
        if isinstance(assigned, ast.Assign) and isinstance(assigned.value, ast.Constant):
            code = assigned.value.value
            assert isinstance(code, int)
            assert isinstance(below, ast.Expr), f"exit code {code} has no meaning below it"
            codes[code] = " ".join(ast.literal_eval(below.value).split()).replace("``", "`")
    return codes


def _under_systemd(code: int) -> str:
    if code in _ENDS_ONLY_COMMANDS:
        return ""
    return "stays down" if code in {exits.OK, *exits.FINAL} else "is restarted"


def _when_it_stays(code: int) -> str:
    if code in _ENDS_ONLY_COMMANDS:
        return ""
    return "stays, live and unready" if code in {exits.FENCED, exits.REFUSED} else "ends, is restarted"
