"""The local Pulsar: refuses to start twice, and says why a process that ended by itself did."""

import pytest

from deploy.local.processes import LocalError
from deploy.local.pulsar import LocalPulsar

pytestmark = pytest.mark.live


def test_starting_twice_is_refused(pulsar: LocalPulsar) -> None:
    with pytest.raises(LocalError, match="already running"):
        pulsar.start()
    with pytest.raises(LocalError, match=r"broker2 .* is already running"):
        pulsar.start_broker(2)


def test_a_process_that_ends_by_itself_is_reported_with_the_end_of_its_log(pulsar: LocalPulsar):
    pulsar.check()
    stray = pulsar.jvm("stray", "no.such.Main", heap_mb=16, direct_mb=16)
    stray.launch()
    assert stray.process is not None
    stray.process.wait()
    with pytest.raises(LocalError, match=r"(?s)stray ended with 1; the end of .*stray\.log:.*no\.such\.Main"):
        stray.check()
