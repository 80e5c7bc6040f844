"""Golden events put on a stage's topics, as a controller would, and the events that come back to it."""

import json
from typing import Any
from uuid import uuid4

from tests.live.stage import Stage
from tests.streaming.golden import folders, messages

CLUSTER = "east-1"
FOR_EVER = "2999-01-01T00:00:00.000Z"
GOLDEN = messages(folders()[-1])


def golden_action(kind: str, **data: object) -> dict[str, Any]:
    """A golden action for ``CLUSTER``, which is no dry-run and never expires."""
    event = json.loads(json.dumps(GOLDEN[f"trimtab.action.{kind}.v1"]))
    event |= {"id": uuid4().hex, "cluster": CLUSTER}
    event["data"] |= {"cluster": CLUSTER, "dry_run": False, "expires_at": FOR_EVER, **data}
    return dict(event)


def publish(stage: Stage, topic: str, event: dict[str, Any]) -> None:
    """Publish an event with epoch 1; returns when the brokers have it."""
    header = ("trimtab-epoch", b"1")
    stage.send_raw(CLUSTER.encode(), json.dumps(event).encode(), to=topic, headers=[header])
    stage.flush()


def decided(stage: Stage) -> dict[str, Any]:
    """An unload with the summary of its round, both published."""
    action = golden_action("unload")
    summary = json.loads(json.dumps(GOLDEN["trimtab.round.v1"])) | {"cluster": CLUSTER}
    summary["data"] |= {"cluster": CLUSTER, "round": action["data"]["round"]}
    publish(stage, stage.topics.actions, action)
    publish(stage, stage.topics.audit, summary)
    return action


def throttle_of(topic: str, *, number: int) -> dict[str, Any]:
    """The golden action for one topic of broker 1; each number has another rate and another entry to add."""
    return golden_action(
        "throttle",
        precondition={"reassignments": "planned"},
        add_leader_throttled_replicas={topic: f"0:{number}"},
        add_follower_throttled_replicas={},
        leader_rate_bytes_per_s={"1": number * 1_000_000},
        follower_rate_bytes_per_s={},
    )


def events_for_the_controller(stage: Stage, kind: str) -> list[dict[str, Any]]:
    """`data` of every event of a type on the input topic."""
    events = [json.loads(value) for value in stage.values(stage.topics.input)]
    return [event["data"] for event in events if event["type"] == kind]


def results(stage: Stage) -> list[dict[str, Any]]:
    """`data` of every result."""
    return events_for_the_controller(stage, "trimtab.action-result.v1")
