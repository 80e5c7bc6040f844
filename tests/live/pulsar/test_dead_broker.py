"""A broker that is killed: it is named and left out while Pulsar still lists it, and read again at once when it is back."""

from contextlib import ExitStack

import pytest

from deploy.local.pulsar import LocalPulsar
from streaming.contract.messages import LoadReportMessage, TickMessage
from tests.live.driving import until
from tests.live.pulsar.commanding import Commander
from tests.live.pulsar.hearing import Heard, collector
from tests.live.pulsar.lab import Lab, other_than
from tests.live.stage import Stage

pytestmark = pytest.mark.live


@pytest.mark.slow
def test_a_killed_broker_fails_by_name_its_actions_fail_with_the_remedy_and_the_others_are_read_without_waiting(
    pulsar: LocalPulsar, stage: Stage
) -> None:
    lab, heard, commander = Lab(pulsar), Heard(), Commander(stage, pulsar)
    *rest, killed = pulsar.broker_ids
    bundle = lab.bundles()[0]
    if lab.assigned(bundle) != killed:
        lab.admin.unload(bundle, destination=killed)
        until(lambda: lab.assigned(bundle) == killed, what=f"{bundle} at {killed}", running=[pulsar])
    collecting = collector(lab.target, heard)
    action = commander.unload(bundle, owner=killed, to=other_than(lab, killed))
    with ExitStack() as stack:
        executing = commander.start(stack)
        pulsar.kill_broker(3)
        stack.callback(pulsar.start_broker, 3)
        assert collecting.sweep()
        assert set(heard.of(LoadReportMessage)) == set(rest)
        tick = heard.of(TickMessage)["tick"]
        assert tick["asked"] == sorted(pulsar.broker_ids), "ZooKeeper still lists it"
        assert "check admin_url" in tick["failed"][killed]

        executing.run(once=True)
        result = commander.results()[action]
        if result["outcome"] == "failed":
            assert "check admin_url" in str(result["reason"])
        else:  # its session in ZooKeeper has ended since
            assert "nobody owns it" in str(result["reason"]), result

        def gone() -> bool:
            assert collecting.sweep()
            return heard.of(TickMessage)["tick"] == {"asked": sorted(rest), "failed": {}}

        until(gone, what="the end of the broker's session", running=[pulsar])
    assert collecting.sweep()
    assert set(heard.of(LoadReportMessage)) == set(pulsar.broker_ids), "and it is read again at once"
    collecting.close()
