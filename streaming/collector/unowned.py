"""Bundles that nobody owns although they had clients or traffic: their topics cannot be used, and their backlog grows.

A bundle without an owner is what Pulsar makes of an unload that fails half-way (apache/pulsar#16327), and of any that no client
follows by a lookup. No load report shows it. So each sweep compares what brokers list with what they listed before, and asks for the
owners of bundles with clients or traffic that are gone from all of them; ``PulsarAdmin.owner`` assigns nothing, as a lookup would. A
bundle whose range is gone, because it was split or its namespace deleted, is forgotten.

What is not known is no loss: while one broker could not be read, nothing is concluded. Known to do badly: a collector that starts
does not know of bundles that were lost before; where a hundred have no owner, others that no broker lists are not asked for.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

from policies.splitting.ranges import BadRange, Bundle
from policies.wording import counted
from state.events import is_system_bundle
from streaming.collector.reports import BundleLoad
from streaming.process.deadline import Deadline
from streaming.pulsar.admin import PulsarAdmin
from streaming.pulsar.http import AdminError

_LOG = logging.getLogger(__name__)
_UNOWNED_MS = 60_000
"""How long it has to be, from the first to the last sweep that found no owner: a bundle changes hands within seconds, and the ownership of
a dead broker ends after 30 s (Pulsar's default ``zooKeeperSessionTimeoutMillis``)."""
_MOST_ASKED = 100
"""Bundles whose owner is asked for in a sweep: more without an owner at once are a failure of the cluster, and one finding."""
_MOST_NAMESPACES = 100
"""Namespaces whose ranges are read in a sweep: more at once are a failure of another kind, and named by number only."""


@dataclass(slots=True)
class Unowned:
    """Follows the bundles of one cluster. ``note`` may be called from several threads."""

    admin: PulsarAdmin
    clock_ms: Callable[[], int]
    _listed: dict[str, tuple[frozenset[str], frozenset[str]]] = field(default_factory=dict)
    """By broker, the bundles that it lists, and those of them that have clients or traffic."""
    _used: set[str] = field(default_factory=set)
    """Bundles that had clients or traffic when they were last listed."""
    _missing: list[str] = field(default_factory=list)
    """Those of them that no broker lists, longest missing first."""
    _gone: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By bundle, the times in milliseconds of the first and of the last sweep that found no owner."""
    found: dict[str, int] = field(default_factory=dict)
    """By bundle that nobody owned when that was last known, since when in milliseconds."""

    def note(self, broker: str, loads: Mapping[str, BundleLoad], bundles: Iterable[str]) -> None:
        """Take what a broker lists now; ``bundles`` may be without a load."""
        listed = frozenset(name for name in (*loads, *bundles) if not is_system_bundle(name))
        used = frozenset(
            name
            for name, load in loads.items()
            if name in listed and load.messages_per_s + load.bytes_per_s + load.sessions_count > 0
        )
        self._listed[broker] = listed, used

    def find(self, brokers: Sequence[str], pool: Executor, *, within_s: float) -> dict[str, int]:
        """``found``, after a sweep that read all ``brokers``; as it was if owners or ranges are not known ``within_s``."""
        deadline = Deadline(within_s)
        # a broker that left and came back while it was being read has no listing yet
        self._listed = {broker: self._listed[broker] for broker in brokers if broker in self._listed}
        listed = frozenset[str]().union(*(bundles for bundles, _ in self._listed.values()))
        gone = self._used - listed
        self._used = gone.union(*(used for _, used in self._listed.values()))
        self._missing = [
            *filter(gone.__contains__, self._missing),
            *sorted(gone.difference(self._missing)),
        ]
        try:
            self.found = self._lost(brokers, pool, deadline)
        except TimeoutError:
            _LOG.warning("who owns %s without a listing is not known yet", counted(len(gone), "bundle"))
        return self.found

    def _lost(self, brokers: Collection[str], pool: Executor, deadline: Deadline) -> dict[str, int]:
        """By missing bundle that nobody owns for long enough, since when. Raises ``TimeoutError``."""
        answers = self._ask(brokers, pool, deadline)
        self._used.difference_update(name for name, is_owned in answers.items() if is_owned)
        before, now_ms = self._gone, self.clock_ms()
        self._gone = {
            name: (before.get(name, (now_ms,))[0], now_ms) if is_owned is False else before[name]
            for name, is_owned in answers.items()
            if is_owned is False or (is_owned is None and name in before)
        }
        long_gone = [
            name for name, (first_ms, last_ms) in self._gone.items() if last_ms - first_ms >= _UNOWNED_MS
        ]
        existing = self._existing(sorted(long_gone), pool, deadline)
        return {name: self._gone[name][0] for name in existing}

    def _ask(self, brokers: Collection[str], pool: Executor, deadline: Deadline) -> dict[str, bool | None]:
        """Whether missing bundles have an owner; None: not known. Raises ``TimeoutError``.

        Where none of those asked for has an owner, the others have none, too; else the others are left out.
        """
        asked = self._missing[:_MOST_ASKED]
        answers: dict[str, bool | None] = {}
        errors = []
        is_owned = partial(self._is_owned, brokers=brokers)
        for name, answer in zip(asked, pool.map(is_owned, asked, timeout=deadline.left_s), strict=True):
            if isinstance(answer, AdminError):
                errors.append(answer)
            answers[name] = None if isinstance(answer, AdminError) else answer
        if errors:
            _LOG.warning(
                "whether anybody owns %s without a listing is not known: %s",
                counted(len(errors), "bundle"),
                errors[0],
            )
        if True in answers.values():
            return answers
        return dict.fromkeys(self._missing, None if errors else False) | answers

    def _is_owned(self, bundle: str, *, brokers: Collection[str]) -> bool | AdminError:
        """Whether a broker owns a bundle; True for what no broker can own, so that it is missed no more."""
        try:
            return self.admin.owner(Bundle.parse(bundle), brokers) is not None
        except BadRange:
            return True
        except AdminError as error:
            is_deleted = error.failure == "not-found" and self._ranges(bundle.rpartition("/")[0]) == set()
            return is_deleted or error

    def _existing(self, bundles: Sequence[str], pool: Executor, deadline: Deadline) -> list[str]:
        """The bundles whose range is still there, or as far as that is known, or unread beyond a hundred namespaces.

        Those whose range is gone are forgotten. Raises ``TimeoutError``.
        """
        namespaces = list(
            islice(dict.fromkeys(name.rpartition("/")[0] for name in bundles), _MOST_NAMESPACES)
        )
        ranges = dict(
            zip(namespaces, pool.map(self._ranges, namespaces, timeout=deadline.left_s), strict=True)
        )
        kept = []
        for name in bundles:
            known = ranges.get(name.rpartition("/")[0], {name})
            if known is not None and name not in known:
                self._used.discard(name)
                del self._gone[name]
            elif known is not None or name in self.found:
                kept.append(name)
        return kept

    def _ranges(self, namespace: str) -> set[str] | None:
        """Full names of a namespace's bundles; None if they cannot be read now."""
        try:
            return set(map(str, self.admin.bundles(namespace)))
        except AdminError as error:
            return set() if error.failure == "not-found" else None
