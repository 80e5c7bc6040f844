"""The bookie of a real Pulsar is away for a while, the executor idle: once it is back, actions are carried out and told."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pulsar as pulsar_client
import pytest

from deploy.local.pulsar import LocalPulsar
from streaming.pulsar_admin import BundleName
from tests.live.driving import until
from tests.live.pulsar.commanding import Commander
from tests.live.pulsar.lab import Lab
from tests.live.pulsar.stage import PulsarStage

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.timeout(600)]

OUTAGE_S = 40.0
"""Long enough for an idle producer to be lost for good, where its client is kept."""


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPulsar]:
    """One whose bookie may be stopped."""
    with LocalPulsar(tmp_path_factory.mktemp("own"), brokers=1) as running:
        yield running


def say_expired(stage: PulsarStage, own: LocalPulsar) -> str | None:
    """An action whose result is a skip; its id, or None while Pulsar does not take it. The stage's client is made anew."""
    stage.connect_anew()
    commander = Commander(stage, own)
    bundle = BundleName("lab/none", 0, 0x40000000)
    past = (datetime.now(UTC) - timedelta(seconds=1)).isoformat()
    try:
        return commander.unload(
            bundle, owner="b1:8080", to=None, expires_at=past, id_=f"a{time.monotonic_ns()}"
        )
    except pulsar_client.PulsarException:
        return None


def test_after_a_bookies_outage_an_idle_executor_tells_results_again_and_repeats_no_batch_for_ever(
    own: LocalPulsar, tmp_path: Path
) -> None:
    stage = PulsarStage.of(Lab(own, bundles_count=1), tmp_path)
    with ExitStack() as stack:
        stack.callback(stage.close)
        loop = Commander(stage, own).start(stack)
        thread = threading.Thread(target=loop.run, daemon=True)
        thread.start()
        stack.callback(thread.join, 60)
        stack.callback(loop.stop)

        def outcome_of(action: str) -> object:
            return Commander(stage, own).results().get(action)

        first = say_expired(stage, own)
        assert first is not None
        until(lambda: outcome_of(first), what="the first result")

        bookie = own.processes["bookie"]
        bookie.end(signal.SIGTERM)
        back_s = time.monotonic() + OUTAGE_S
        until(lambda: time.monotonic() > back_s, what="the outage to last")
        bookie.launch()

        second = until(lambda: say_expired(stage, own), what="Pulsar to take an action")
        until(lambda: outcome_of(second), what="its result")
        until(loop._actions.is_at_end, what="it to be dealt with for good")
        third = until(lambda: say_expired(stage, own), what="Pulsar to take another")
        until(lambda: outcome_of(third), what="its result")
        until(lambda: loop.readiness()[0].ok, what="the executor to be ready")
        assert Commander(stage, own).results_count() <= 6, (
            "each told once or, where that was not known, twice"
        )
