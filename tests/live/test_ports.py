"""The ports on a real Kafka."""

import pytest

from streaming.settings import Settings, load
from tests.live.stage import Stage
from tests.live.suites.ports import PortsSuite

pytestmark = pytest.mark.live


@pytest.fixture
def settings(stage: Stage) -> Settings:
    return load(file=stage.settings(), flags={}, environ={}).settings


class TestPorts(PortsSuite):
    """The same tests as on Pulsar."""
