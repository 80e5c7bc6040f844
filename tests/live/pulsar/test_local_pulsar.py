"""The local Pulsar: refuses to start twice, and says why a process that ended by itself did."""

import re

import pytest

from deploy.local.pulsar import LocalPulsar, LocalPulsarError

pytestmark = pytest.mark.live


def test_starting_twice_is_refused(pulsar: LocalPulsar) -> None:
    with pytest.raises(LocalPulsarError, match="already running"):
        pulsar.start()
    with pytest.raises(LocalPulsarError, match=r"broker2 .* is already running"):
        pulsar.start_broker(2)


def test_a_broker_that_ends_by_itself_is_reported_with_the_end_of_its_log(pulsar: LocalPulsar) -> None:
    pulsar.check()
    process = pulsar.processes["broker2"].process
    assert process is not None
    process.kill()
    process.wait()
    try:
        with pytest.raises(
            LocalPulsarError, match=r"(?s)broker2 ended with -9; the end of .*broker2\.log:.*INFO"
        ) as raised:
            pulsar.check()
        assert len(re.findall("\n", str(raised.value))) > 5
    finally:
        pulsar.kill_broker(2)
        pulsar.start_broker(2)
