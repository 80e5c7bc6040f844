"""``--from earliest|latest|TIME``, read the same way by every command that has it."""

from datetime import datetime
from typing import Literal, cast

import click

from streaming.transport.side import Begin


def begin_of(text: str) -> Begin:
    """The option's value; raises ``click.BadParameter`` naming it."""
    if text in {"earliest", "latest"}:
        return cast("Literal['earliest', 'latest']", text)
    return moment_of(text, "--from", "is not earliest, latest or RFC 3339, such as 2026-11-25T06:00:00Z")


def moment_of(text: str, option: str, problem: str = "is not RFC 3339") -> int:
    """A time as milliseconds since the epoch; raises ``click.BadParameter`` naming the option."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r} {problem}", param_hint=option) from error
    if moment.tzinfo is None:
        raise click.BadParameter(f"{text!r} has no offset: add Z for UTC", param_hint=option)
    return round(moment.timestamp() * 1000)
