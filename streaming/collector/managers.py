"""Which load manager each broker of a cluster runs, and when that changes.

A cluster is switched from one manager to the other by its dynamic configuration, all brokers at once, or by restarts, one broker
after the other. So every sweep asks one broker for its manager, and also each broker whose load cannot be read.
"""

import logging
import threading
from collections import Counter
from collections.abc import Mapping, Sequence

from streaming.collector.metrics import CollectorMetrics
from streaming.pulsar.admin import EXTENSIBLE, BrokerConfiguration, PulsarAdmin
from streaming.pulsar.http import AdminError

_LOG = logging.getLogger(__name__)

_NO_REPORTS = {
    "NoopLoadManager": "makes no load reports",
    "SimpleLoadManagerImpl": "makes load reports of an obsolete form",
}


class WrongLoadManager(Exception):
    """The cluster's load manager makes no reports a collector could read; the text says which and what to do."""


def require_reports(found: BrokerConfiguration, *, cluster: str) -> None:
    """Raises ``WrongLoadManager`` for a load manager that is known to make no full reports."""
    why = _NO_REPORTS.get(found.load_manager)
    if why is not None:
        raise WrongLoadManager(
            f"cluster {cluster}: its brokers run {found.load_manager}, which {why}. There is nothing to collect: set "
            "loadManagerClassName=org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl or "
            "…loadbalance.extensions.ExtensibleLoadManagerImpl at every broker, with loadBalancerSheddingEnabled=false "
            "and loadBalancerAutoBundleSplitEnabled=false"
        )


class LoadManagers:
    """The load managers of one cluster's brokers. Thread-safe."""

    def __init__(self, admin: PulsarAdmin, metrics: CollectorMetrics, *, cluster: str, first: str) -> None:
        """``first`` is what one broker answered at the start; it counts for each broker that has not answered otherwise."""
        self._admin = admin
        self._metrics = metrics
        self._cluster = cluster
        self._common = first
        self._own: dict[str, str] = {}
        self._next = -1
        self._due: set[str] = set()
        self._has_changed = False
        self._lock = threading.Lock()

    def of(self, broker: str) -> str:
        """Class of a broker's load manager, without the package."""
        with self._lock:
            return self._own.get(broker, self._common)

    def is_extensible(self, broker: str) -> bool:
        """Whether a broker publishes its load instead of answering with a report."""
        return self.of(broker) == EXTENSIBLE

    def begin_sweep(self, brokers: Sequence[str]) -> None:
        """Choose the brokers to ask in this sweep: one, the next one each time, or all after one has changed."""
        with self._lock:
            self._next += 1
            self._due = (
                set(brokers)
                if self._has_changed
                else {brokers[self._next % len(brokers)]}
                if brokers
                else set()
            )
            self._has_changed = False
        self._metrics.show_load_managers(Counter(map(self.of, brokers)))

    def ask_if_due(self, broker: str) -> None:
        """Ask a broker for its manager if it is due in this sweep."""
        with self._lock:
            is_due = broker in self._due
            self._due.discard(broker)
        if is_due:
            self.ask(broker)

    def ask(self, broker: str) -> bool:
        """Ask a broker for its manager; returns whether it is another than before. False if the broker does not answer."""
        try:
            found = self._admin.configuration(broker).load_manager
        except AdminError:
            return False
        return self._note(broker, found)

    def note(self, found: Mapping[str, str | None]) -> None:
        """Note the managers that brokers reported; None: not reported."""
        for broker, manager in found.items():
            if manager is not None:
                self._note(broker, manager)

    def _note(self, broker: str, found: str) -> bool:
        before = self.of(broker)
        if not found or found == before:
            return False
        with self._lock:
            self._own[broker] = found
            self._has_changed = True
        _LOG.warning(
            "the load manager of %s has changed: broker %s runs %s now, and ran %s before",
            self._cluster,
            broker,
            found,
            before,
        )
        return True
