"""The bookie of a real Pulsar is away for a while: once it is back, the executor carries actions out and reports their results.

Others write to the topic of the results all the time, as collectors do, so that Pulsar fences it: a producer made before that
never works again.
"""

import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pulsar as pulsar_client
import pytest

from deploy.local.pulsar import LocalPulsar
from policies.splitting.ranges import Bundle, BundleRange
from streaming.executor.pulsar import ExecutorLoop
from streaming.process.deadline import Deadline
from streaming.pulsar.clients import close
from tests.support.actions import results
from tests.support.processes import meanwhile, until
from tests.support.pulsar import Lab, PulsarStage, connected
from tests.support.pulsar_programs import Commander

pytestmark = [pytest.mark.live, pytest.mark.slow]

OUTAGE_S = 40.0
"""Long enough for a producer to be lost for good, if its client is kept."""
RECOVERY_S = 90.0
_PAUSE_S = 0.05
_SEND_MS = 5_000


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPulsar]:
    """A Pulsar whose bookie may be stopped."""
    with LocalPulsar(tmp_path_factory.mktemp("own"), brokers=1) as running:
        yield running


class Bookie:
    """A bookie that goes away once, and comes back when it has been away for long enough."""

    def __init__(self, own: LocalPulsar) -> None:
        self._process = own.processes["bookie"]
        self.gone = threading.Event()
        self._outage = Deadline(0.0)

    def go(self) -> None:
        if not self.gone.is_set():
            self._process.end(signal.SIGTERM)
            self._outage = Deadline(OUTAGE_S)
            self.gone.set()

    def come_back(self) -> None:
        until(lambda: self._outage.is_over, what="the outage to last")
        self._process.launch()


class Asker:
    """Publishes actions whose result is a skip, and reads the results; makes a new client each time."""

    def __init__(self, stage: PulsarStage, own: LocalPulsar) -> None:
        self._stage = stage
        self._own = own

    def ask(self) -> str | None:
        """Publish an action; returns its id, or None while Pulsar does not take it."""
        self._stage.connect_anew()
        past = (datetime.now(UTC) - timedelta(seconds=1)).isoformat()
        bundle, id_ = Bundle("lab/none", BundleRange(0, 0x40000000)), f"a{time.monotonic_ns()}"
        try:
            return Commander(self._stage, self._own).unload(
                bundle, owner="b1:8080", to=None, expires_at=past, id_=id_
            )
        except pulsar_client.PulsarException:
            return None

    def shown(self) -> Counter[str]:
        """How often the result of each action was written; empty while Pulsar does not answer."""
        self._stage.connect_anew()
        try:
            return Counter(each["subject"] for each in results(self._stage))
        except pulsar_client.PulsarException:
            return Counter()

    def wait_for(self, action: str) -> None:
        until(lambda: action in self.shown(), what=f"the result of {action}", timeout_s=RECOVERY_S)

    def others_write(self, stop: threading.Event) -> None:
        """Write other events to the topic of the results; those that are not taken are lost."""
        client = connected(self._own)
        producer: pulsar_client.Producer | None = None
        while not stop.wait(_PAUSE_S):
            try:
                producer = producer or client.create_producer(
                    self._stage.full_name(self._stage.topics.input), send_timeout_millis=_SEND_MS
                )
                producer.send_async(b'{"type": "of another"}', None)
            except pulsar_client.PulsarException:
                continue
        close(client)


def goes_at_the_next_result(loop: ExecutorLoop, bookie: Bookie, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop the bookie when the next result is to be written: the action was carried out, but its result cannot be written."""
    plain = loop._results.send

    def send(key: str, value: bytes) -> None:
        bookie.go()
        plain(key, value)

    monkeypatch.setattr(loop._results, "send", send)


@pytest.mark.parametrize("when", ["idle", "telling"])
def test_after_a_bookies_outage_the_executor_tells_results_again(
    own: LocalPulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
):
    stage, bookie = PulsarStage.of(Lab(own, bundles_count=1), tmp_path), Bookie(own)
    asker, asked = Asker(stage, own), []
    with ExitStack() as stack:
        stack.callback(stage.close)
        loop = Commander(stage, own).start(stack)
        thread = threading.Thread(target=loop.run, daemon=True)
        thread.start()
        stack.callback(thread.join, 60)
        stack.callback(loop.stop)
        asked.append(until(asker.ask, what="Pulsar to take an action"))
        asker.wait_for(asked[0])
        with meanwhile(asker.others_write):
            until(lambda: len(stage.values(stage.topics.input)) > 5, what="the others to write")
            if when == "telling":
                goes_at_the_next_result(loop, bookie, monkeypatch)
                asked.append(until(asker.ask, what="Pulsar to take another"))
            else:
                bookie.go()
            until(bookie.gone.is_set, what="the outage")
            bookie.come_back()
            for _ in range(2):
                asker.wait_for(asked[-1])
                asked.append(until(asker.ask, what="Pulsar to take an action", timeout_s=RECOVERY_S))
            asker.wait_for(asked[-1])
            until(loop._actions.is_at_end, what="all to be dealt with for good")
            until(lambda: loop.readiness()[0].ok, what="the executor to be ready")
        shown = asker.shown()
    assert set(shown) == set(asked)
    assert max(shown.values()) <= 2, "each told once or, where that was not known, twice"
