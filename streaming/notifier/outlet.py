"""What one receiver gets, and how often: filters, lasting conditions, and the limit on messages. Pure: the time is passed in."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace

from streaming.notifier.notices import Notice, RecordNotices
from streaming.settings.receivers import ReceiverSettings

_HOUR_S = 3600.0
OLD_S = 3600.0
"""Seconds; a notice that is older when it is read is left out: after a long stop nobody wants last night's moves."""


class Outlet:
    """Collects notices until they are taken as one message. Not thread-safe."""

    def __init__(self, settings: ReceiverSettings) -> None:
        self._settings = settings
        self._waiting: list[Notice] = []
        self._sent_ms: dict[tuple[str, str], int] = {}
        """By cluster and key, the time of the last notice that was sent about a lasting condition."""
        self._lasting: dict[str, dict[str, Notice]] = {}
        """By cluster, the holds of its newest round."""
        self._sent_s: deque[float] = deque()
        self.left_out_count = 0
        """Notices that the limit left out since the last message."""

    def offer(self, found: RecordNotices, *, now_s: float) -> int:
        """Take the notices that this receiver wants; returns how many of them are too old."""
        wanted = [each for each in found.notices if self._is_wanted(each)]
        if found.is_round and self._concerns(found.cluster):
            wanted += self._find_ended(found)
        fresh = [each for each in wanted if now_s - each.time_ms / 1000 <= OLD_S]
        self._waiting += self._due(fresh)
        return len(wanted) - len(fresh)

    def take(self, *, now_s: float) -> Sequence[Notice]:
        """What is to be sent now as one message; empty where there is nothing, or the limit is reached."""
        if not self._waiting:
            return ()
        notices, self._waiting = self._waiting, []
        while self._sent_s and now_s - self._sent_s[0] >= _HOUR_S:
            self._sent_s.popleft()
        limit = self._settings.max_per_hour_count
        if limit and len(self._sent_s) >= limit:
            self.left_out_count += self.defer(notices)
            return ()
        self._sent_s.append(now_s)
        return notices

    def defer(self, notices: Sequence[Notice]) -> int:
        """Let the next round send lasting conditions again; returns the number of the other notices, which are never sent."""
        lasting = [each for each in notices if each.key and not each.has_ended]
        for each in lasting:
            self._sent_ms.pop((each.cluster, each.key), None)
        return len(notices) - len(lasting)

    def take_left_out(self) -> int:
        """How many notices the limit left out since the last call."""
        count, self.left_out_count = self.left_out_count, 0
        return count

    def _concerns(self, cluster: str) -> bool:
        return not self._settings.clusters or cluster in self._settings.clusters

    def _is_wanted(self, notice: Notice) -> bool:
        return (
            notice.kind in self._settings.kinds
            and self._concerns(notice.cluster)
            and (self._settings.dry_run or not notice.dry_run)
        )

    def _find_ended(self, found: RecordNotices) -> list[Notice]:
        """Holds of the previous round that this one does not have, if they were sent."""
        now = {each.key: each for each in found.notices if each.kind == "holds" and self._is_wanted(each)}
        before = self._lasting.get(found.cluster, {})
        self._lasting[found.cluster] = now
        return [
            replace(each, has_ended=True, title=f"ended: {each.title}", severity="info")
            for key, each in before.items()
            if key not in now and self._sent_ms.pop((found.cluster, key), None) is not None
        ]

    def _due(self, notices: Iterable[Notice]) -> list[Notice]:
        """The notices to send; a lasting condition only if it was not sent lately."""
        found = []
        for each in notices:
            place = (each.cluster, each.key)
            sent_ms = self._sent_ms.get(place)
            if each.key and not each.has_ended:
                if sent_ms is not None and each.time_ms - sent_ms < 1000 * self._settings.repeat_after_s:
                    continue
                self._sent_ms[place] = each.time_ms
            found.append(each)
        return found
