"""The canonical form of an output, JSON in UTF-8 without white space, keys sorted; and its id, which says what is to be done."""

import hashlib
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Literal, Protocol

import msgspec

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  naive on purpose: isoformat then leaves the offset to us
_MS = timedelta(milliseconds=1)
_FORMAT = "%Y-%m-%dT%H:%M:%S.%fZ"
_FIRST_MS = (datetime(1, 1, 1) - _EPOCH) // _MS  # noqa: DTZ001  the calendar's first day, naive like the epoch
_LAST_MS = (datetime(9999, 12, 31) - _EPOCH) // _MS  # noqa: DTZ001


class Identified(Protocol):
    """What an output can be about."""

    def identity(self) -> tuple[object, ...]:
        """What is to be done, beyond what the envelope says: two decisions are the same exactly if these are equal."""


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """One event to publish; ``data`` is canonical and already encoded."""

    kind: Literal["action", "round"]
    type: str
    subject: str
    cluster: str
    round: int
    place: int
    """Place in the round: actions in the policy's order, the summary last."""
    time_ms: int
    """End of the round."""
    id: str
    data: bytes
    dry_run: bool


def output(
    *,
    kind: Literal["action", "round"],
    type_: str,
    subject: str,
    cluster: str,
    number: int,
    place: int,
    time_ms: int,
    data: Identified,
    dry_run: bool,
) -> Output:
    """An output of ``data``, encoded once. Its id depends on what is to be done, not on reasons, evidence or expiry."""
    return Output(
        kind=kind,
        type=type_,
        subject=subject,
        cluster=cluster,
        round=number,
        place=place,
        time_ms=time_ms,
        id=content_id(canonical([type_, cluster, number, subject, *data.identity()])),
        data=canonical(data),
        dry_run=dry_run,
    )


def canonical(data: Any) -> bytes:
    """Canonical JSON of a struct."""
    return msgspec.json.encode(data, order="sorted")


def content_id(data: bytes) -> str:
    """An id: the first 128 bits of the SHA-256 of what makes it unique, in hex."""
    return hashlib.sha256(data).hexdigest()[:32]


def moment_ms(text: str) -> int:
    """What ``rfc3339`` wrote, in milliseconds since the epoch. Raises ``ValueError``."""
    return (datetime.strptime(text, _FORMAT) - _EPOCH) // _MS  # noqa: DTZ007  both are UTC, as the Z says


@lru_cache(maxsize=256)
def rfc3339(time_ms: int) -> str:
    """UTC with milliseconds, e.g. ``2026-11-21T13:21:25.206Z``; a time outside the calendar becomes its first or last moment.

    Cached, because a summary names the few moments of its rounds some hundred times.
    """
    moment = _EPOCH + timedelta(milliseconds=min(max(time_ms, _FIRST_MS), _LAST_MS))
    return moment.isoformat(timespec="milliseconds") + "Z"
