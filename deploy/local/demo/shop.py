"""Real traffic on a real namespace, all of it at one broker at the start: bundles of very different weight, one too hot.

Invariant: every bundle has at least two topics, because Pulsar cuts no bundle with fewer.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pulsar as pulsar_client

from deploy.local.processes import LocalError
from deploy.local.pulsar import LocalPulsar
from policies.splitting.ranges import Bundle, position_of
from streaming.collector.reports import topic_traffic
from streaming.process.deadline import poll
from streaming.pulsar.admin import PulsarAdmin
from streaming.pulsar.http import AdminError, HttpClient
from streaming.settings import PulsarTarget

TENANT, NAMESPACE = "shop", "shop/orders"
HOT_MESSAGES_PER_S = 180.0
HOT_TOPICS_COUNT = 6
RATES_MESSAGES_PER_S = (HOT_MESSAGES_PER_S, 80, 70, 60, 50, 50, 45, 40, 35, 30, 25, 20, 15)
"""The rate of each bundle; with more bundles there would be nothing to see, with fewer nothing to choose from."""
TOTAL_MESSAGES_PER_S = sum(RATES_MESSAGES_PER_S)
PAYLOAD = b"x" * 200
BEAT_S = 0.05
TIMEOUT_S = 120.0
POLL_S = 0.2
_STOP_S = 10.0


class Shop:
    """The demo's namespace on ``pulsar``. Raises ``AdminError`` and ``LocalError``."""

    def __init__(self, pulsar: LocalPulsar) -> None:
        self._pulsar = pulsar
        target = PulsarTarget(admin_url=pulsar.admin_url)
        self._http = HttpClient(target)
        self._admin = PulsarAdmin(self._http, target)

    def open(self) -> None:
        """Make the namespace, and move all its bundles to the first broker."""
        call = self._admin.call
        call(
            "PUT",
            f"/admin/v2/tenants/{TENANT}",
            body={"allowedClusters": [self._pulsar.cluster], "adminRoles": []},
        )
        bundles = {"bundles": {"numBundles": len(RATES_MESSAGES_PER_S)}}
        call("PUT", f"/admin/v2/namespaces/{NAMESPACE}", body=bundles)
        for topic in self._rates():
            call("PUT", f"/admin/v2/persistent/{topic.removeprefix('persistent://')}")
        first = self._pulsar.broker_ids[0]
        for bundle, topics in self._topics():
            _wait(lambda each=topics[0]: self._owner(each) is not None, f"{bundle} has no owner")  # type: ignore[misc]
            if self._owner(topics[0]) != first:
                self._admin.unload(bundle, destination=first)
                _wait(lambda each=topics[0]: self._owner(each) == first, f"{bundle} is not at {first}")  # type: ignore[misc]

    @contextmanager
    def busy(self, log: Path) -> Iterator[None]:
        """Send messages on every topic until the end of the block, which begins when the first broker reports them.

        The client's log lines about bundles that move go to ``log``, not to the screen.
        """
        logger = pulsar_client.FileLogger(pulsar_client.LoggerLevel.Warn, str(log))
        client = pulsar_client.Client(self._pulsar.service_url, logger=logger)
        stop = threading.Event()
        rates = self._rates()
        producers = [client.create_producer(topic, block_if_queue_full=True) for topic in rates]
        given = (producers, list(rates.values()), stop)
        sender = threading.Thread(target=_send, args=given, name="traffic", daemon=True)
        sender.start()
        try:
            _wait(self._is_reported, "the first broker does not report the traffic")
            yield
        finally:
            stop.set()
            sender.join(_STOP_S)
            client.close()
            self._http.close()

    def _is_reported(self) -> bool:
        """Whether the first broker's topic statistics show the traffic; it has them with either load manager."""
        found = topic_traffic(self._admin.topic_stats(self._pulsar.broker_ids[0]), None)
        rates = [each.msgRateIn or 0.0 for topics in found.values() for each in topics.values()]
        return sum(rates) > 0.9 * TOTAL_MESSAGES_PER_S

    def _owner(self, topic: str) -> str | None:
        try:
            return self._admin.lookup(topic)
        except AdminError:  # being unloaded, or no leader is elected yet
            return None

    def _topics(self) -> list[tuple[Bundle, list[str]]]:
        count = len(RATES_MESSAGES_PER_S)
        bundles = self._admin.bundles(NAMESPACE)
        assert len(bundles) == count
        return [
            (bundle, _names(bundle, HOT_TOPICS_COUNT if rate == HOT_MESSAGES_PER_S else 2))
            for bundle, rate in zip(bundles, RATES_MESSAGES_PER_S, strict=True)
        ]

    def _rates(self) -> dict[str, float]:
        """Messages/s by topic: the topics of a bundle share its rate."""
        return {
            topic: rate / len(topics)
            for (_, topics), rate in zip(self._topics(), RATES_MESSAGES_PER_S, strict=True)
            for topic in topics
        }


def _names(bundle: Bundle, count: int) -> list[str]:
    """Topics that fall into a bundle."""
    found: list[str] = []
    number = 0
    while len(found) < count:
        topic = f"persistent://{NAMESPACE}/order-{number}"
        if bundle.range.contains(position_of(topic)):
            found.append(topic)
        number += 1
    return found


def _send(producers: Sequence[pulsar_client.Producer], rates: Sequence[float], stop: threading.Event) -> None:
    """Send what is due on each topic every ``BEAT_S``; what was not sent while a broker stalled is not made up for."""
    due = [0.0] * len(rates)
    before_s = time.monotonic()
    while not stop.wait(BEAT_S):
        now_s = time.monotonic()
        passed_s, before_s = min(1.0, now_s - before_s), now_s
        for place, producer in enumerate(producers):
            due[place] += rates[place] * passed_s
            while due[place] >= 1.0:
                producer.send_async(PAYLOAD, None)
                due[place] -= 1.0


def _wait(condition: Callable[[], bool], otherwise: str) -> None:
    if not poll(condition, timeout_s=TIMEOUT_S, pause_s=POLL_S):
        raise LocalError(f"{otherwise} after {TIMEOUT_S:g} s")
