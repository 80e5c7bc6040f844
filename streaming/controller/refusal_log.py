"""What the log says about refused records: a line for each cluster and reason, at most one a minute.

The dead-letter topic has all of them. A line names the first of the records that it stands for.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from streaming.contract.envelope import ReadEnvelope

_LOG = logging.getLogger("trimtab.refused")
_WINDOW_S = 60.0
_KINDS_MAX = 10_000
"""Pairs of cluster and reason that are remembered; limited, because records may carry any cluster name."""
_DETAIL_CHARS = 500


class _Refused(msgspec.Struct, frozen=True):
    """The fields of a dead letter that a line needs."""

    reason: str
    detail: str
    topic: str
    partition: int
    offset: int


_decoder = msgspec.json.Decoder(ReadEnvelope[_Refused])


@dataclass(slots=True)
class _Window:
    told_s: float
    untold_count: int = 0


class RefusalLog:
    """Remembers when a line was last written for each cluster and reason."""

    def __init__(self) -> None:
        self._windows: dict[tuple[str, str], _Window] = {}

    def log(self, values: Iterable[bytes], now_s: float) -> None:
        """Log refused records, given as their published dead letters; ``now_s`` is monotonic."""
        first: dict[tuple[str, str], _Refused] = {}
        counts: dict[tuple[str, str], int] = {}
        for value in values:
            event = _decoder.decode(value)
            kind = (event.cluster, event.data.reason)
            first.setdefault(kind, event.data)
            counts[kind] = counts.get(kind, 0) + 1
        for kind, refused in first.items():
            self._log_kind(kind, refused, counts[kind], now_s)

    def _log_kind(self, kind: tuple[str, str], refused: _Refused, count: int, now_s: float) -> None:
        window = self._windows.pop(kind, None)
        if window is not None and now_s - window.told_s < _WINDOW_S:
            window.untold_count += count
            self._windows[kind] = window
            return
        self._windows[kind] = _Window(now_s)
        if len(self._windows) > _KINDS_MAX:
            del self._windows[next(iter(self._windows))]
        cluster, reason = kind
        _LOG.warning(
            "%s: %d records refused as %s%s, such as %s/%d@%d: %s (`trimtab rejected tail` shows all)",
            cluster or "no valid cluster",
            count + (0 if window is None else window.untold_count),
            reason,
            "" if window is None else " since the last such line",
            refused.topic,
            refused.partition,
            refused.offset,
            refused.detail[:_DETAIL_CHARS],
            extra={"cluster": cluster} if cluster else {},
        )
