"""The ports on a real Pulsar."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.pulsar import LocalPulsar
from streaming.settings import Settings
from tests.live.pulsar.lab import Lab
from tests.live.pulsar.stage import PulsarStage
from tests.live.suites.ports import PortsSuite

pytestmark = pytest.mark.live


@pytest.fixture
def settings(pulsar: LocalPulsar, tmp_path: Path) -> Iterator[Settings]:
    stage = PulsarStage.of(Lab(pulsar, bundles_count=1), tmp_path)
    yield stage.loaded()
    stage.close()


class TestPorts(PortsSuite):
    """The same tests as on Kafka."""
