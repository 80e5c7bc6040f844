"""``--from earliest|latest|TIME``, read the same way by every command that has it."""

from datetime import datetime
from typing import Literal, cast

import click

from streaming.ports.reading import Begin


def begin_of(text: str) -> Begin:
    """The option's value; raises ``click.BadParameter`` naming it."""
    if text in {"earliest", "latest"}:
        return cast("Literal['earliest', 'latest']", text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise click.BadParameter(
            f"{text!r} is neither earliest nor latest nor RFC 3339", param_hint="--from"
        ) from error
    if moment.tzinfo is None:
        raise click.BadParameter(f"{text!r} has no offset: add Z for UTC", param_hint="--from")
    return round(moment.timestamp() * 1000)
