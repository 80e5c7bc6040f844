"""`trimtab notify` as a process, against a real Kafka and a webhook on this machine: each thing is told once, across starts."""

import json
import time

import pytest

from state.outputs import rfc3339
from tests.live.driving import command
from tests.live.stage import QUICK, Stage
from tests.live.webhook import webhook

pytestmark = [pytest.mark.live, pytest.mark.slow]


def unload(bundle: str) -> bytes:
    """An action of this moment."""
    return json.dumps(
        {
            "specversion": "1.0",
            "id": f"id-{bundle}",
            "source": "/trimtab/trimtab",
            "type": "trimtab.action.unload.v1",
            "subject": bundle,
            "time": rfc3339(round(time.time() * 1000)),
            "cluster": "east-1",
            "data": {"reason": "b1 is hot", "dry_run": False, "bundle": bundle, "source_broker": "b1"},
        }
    ).encode()


def test_each_action_is_told_once_and_a_later_start_goes_on_where_the_one_before_ended(stage: Stage) -> None:
    with webhook() as (url, bodies):
        config = stage.settings(base=QUICK + f'[notify."ops"]\nurl = "{url}"\n')
        notify = ("notify", "--config", str(config), "--once")
        for bundle in ("t/n/0x0_0x1", "t/n/0x1_0x2"):
            stage.send([unload(bundle)], to=stage.topics.actions)
            stage.flush()
            command(*notify)
        command(*notify)
    told = [each["title"] for body in bodies for each in body["notices"]]
    assert told == ["unload t/n/0x0_0x1", "unload t/n/0x1_0x2"]
