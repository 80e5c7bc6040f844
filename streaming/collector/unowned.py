"""Bundles that nobody owns although they had clients or traffic: their topics cannot be used, and their backlog grows.

A bundle without an owner is what Pulsar makes of an unload that fails half-way (apache/pulsar#16327), and of any that no client
follows by a lookup. No load report shows it. So each sweep compares what brokers list with what they listed before. Where a bundle
with clients or traffic is gone from all of them, they are asked what they own, each once in a sweep; the admin API tells it without
assigning anything, as a lookup would. A bundle whose range is gone, because it was split or its namespace deleted, is forgotten.

What is not known is no loss: while one broker could not be read, nothing is concluded. Known to do badly: a collector that starts
does not know of bundles that were lost before.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from itertools import islice

from state.events import is_system_bundle
from streaming.collector.reports import BundleLoad
from streaming.pulsar.admin import AdminError, PulsarAdmin

__all__ = ["Unowned"]

_LOG = logging.getLogger(__name__)
_UNOWNED_MS = 60_000
"""How long it has to be: a bundle changes hands within seconds, and the ownership of a dead broker ends after 30 s (Pulsar's default
``zooKeeperSessionTimeoutMillis``)."""
_LEAST_SWEEPS = 2
_MOST_NAMESPACES = 100
"""Namespaces whose ranges are read in a sweep: more at once are a failure of another kind, and named by number only."""


@dataclass(slots=True)
class _Gone:
    since_ms: int
    """Time of the first sweep that found no owner."""
    sweeps_count: int = 0


@dataclass(slots=True)
class Unowned:
    """Follows the bundles of one cluster. ``note`` may be called from several threads."""

    admin: PulsarAdmin
    cluster: str
    """Pulsar's own name of it."""
    clock_ms: Callable[[], int]
    _listed: dict[str, tuple[frozenset[str], frozenset[str]]] = field(default_factory=dict)
    """By broker, the bundles that it lists, and those of them that have clients or traffic."""
    _owned: dict[str, set[str]] = field(default_factory=dict)
    """By broker, what it said in this sweep that it owns."""
    _used: set[str] = field(default_factory=set)
    """Bundles that had clients or traffic when they were last listed."""
    _gone: dict[str, _Gone] = field(default_factory=dict)
    found: dict[str, int] = field(default_factory=dict)
    """By bundle that nobody owned when that was last known, since when in milliseconds."""

    def note(
        self,
        broker: str,
        loads: Mapping[str, BundleLoad],
        bundles: Iterable[str],
        owned: set[str] | None = None,
    ) -> None:
        """Take what a broker lists now; ``bundles`` may be without a load, ``owned`` is what it said that it owns."""
        own = frozenset(name for name in (*loads, *bundles) if not is_system_bundle(name))
        used = frozenset(
            name
            for name, load in loads.items()
            if name in own and load.messages_per_s + load.bytes_per_s + load.sessions_count > 0
        )
        self._listed[broker] = own, used
        if owned is None:
            self._owned.pop(broker, None)
        else:
            self._owned[broker] = owned

    def find(self, brokers: Sequence[str], pool: Executor, *, asked: Collection[str]) -> dict[str, int]:
        """``found``, after a sweep that read all ``brokers``.

        ``asked`` are those that are asked what they own, if that is needed; what the others list is what they own.
        """
        self._listed = {broker: self._listed[broker] for broker in brokers}
        listed = frozenset[str]().union(*(own for own, _ in self._listed.values()))
        self._used = (self._used - listed).union(*(used for _, used in self._listed.values()))
        gone = self._used - listed
        if gone:
            try:
                owned = set[str]().union(*pool.map(self._owned_by, asked))
            except AdminError as error:
                _LOG.warning(
                    "whether %d bundles without a listing are owned is not known: %s", len(gone), error
                )
                return self.found
            self._used -= owned
            gone -= owned
        now_ms = self.clock_ms()
        self._gone = {name: self._gone.get(name, _Gone(now_ms)) for name in gone}
        for each in self._gone.values():
            each.sweeps_count += 1
        long_gone = [
            name
            for name, each in sorted(self._gone.items())
            if each.sweeps_count >= _LEAST_SWEEPS and now_ms - each.since_ms >= _UNOWNED_MS
        ]
        self.found = {name: self._gone[name].since_ms for name in self._existing(long_gone, pool)}
        return self.found

    def _owned_by(self, broker: str) -> set[str]:
        if broker in self._owned:
            return self._owned[broker]
        return self.admin.owned_bundles(self.cluster, broker)

    def _existing(self, bundles: Sequence[str], pool: Executor) -> list[str]:
        """The bundles whose range is still there, and those of namespaces beyond the first hundred; others are forgotten."""
        namespaces = list(
            islice(dict.fromkeys(name.rpartition("/")[0] for name in bundles), _MOST_NAMESPACES)
        )
        ranges = dict(zip(namespaces, pool.map(self._ranges, namespaces), strict=True))
        kept = []
        for name in bundles:
            known = ranges.get(name.rpartition("/")[0], {name})
            if known is not None and name not in known:
                self._used.discard(name)
                del self._gone[name]
            elif known is not None:
                kept.append(name)
        return kept

    def _ranges(self, namespace: str) -> set[str] | None:
        """Full names of a namespace's bundles; None if they cannot be read now."""
        try:
            return set(map(str, self.admin.bundles(namespace)))
        except AdminError as error:
            return set() if error.failure == "not-found" else None
