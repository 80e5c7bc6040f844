"""Golden actions on a stage's topics, as a controller would publish them, and what comes back to the controller."""

import json
from copy import deepcopy
from typing import Any
from uuid import uuid4

from streaming.contract.envelope import EPOCH_HEADER
from tests.streaming.golden import folders, messages
from tests.support.stage import Stage

CLUSTER = "east-1"
FOR_EVER = "2999-01-01T00:00:00.000Z"
GOLDEN = messages(folders()[-1])
RESULT = "trimtab.action-result.v1"


def golden_action(kind: str, *, cluster: str = CLUSTER, id_: str = "", **data: object) -> dict[str, Any]:
    """A golden action for a cluster, which is no dry-run and never expires."""
    event = deepcopy(GOLDEN[f"trimtab.action.{kind}.v1"])
    event |= {"id": id_ or uuid4().hex, "cluster": cluster}
    event["data"] |= {"cluster": cluster, "dry_run": False, "expires_at": FOR_EVER, **data}
    return dict(event)


def throttle(topic: str, replicas: str, rates: dict[str, int], **more: Any) -> dict[str, Any]:
    """A golden throttle of one topic's leaders, and of these brokers."""
    return golden_action(
        "throttle",
        add_leader_throttled_replicas={topic: replicas},
        add_follower_throttled_replicas={},
        leader_rate_bytes_per_s=rates,
        follower_rate_bytes_per_s={},
        **{"precondition": {"reassignments": "unknown"}, **more},
    )


def publish(stage: Stage, event: dict[str, Any], *, to: str | None = None, epoch: int | None = 1) -> str:
    """Publish an event, by default as an action; returns its id when the brokers have it."""
    headers = [] if epoch is None else [(EPOCH_HEADER, str(epoch).encode())]
    value, topic = json.dumps(event).encode(), to or stage.topics.actions
    stage.send_raw(event["cluster"].encode(), value, to=topic, headers=headers)
    stage.flush()
    return str(event["id"])


def decided(stage: Stage) -> dict[str, Any]:
    """An unload with the summary of its round, both published."""
    action = golden_action("unload")
    summary = deepcopy(GOLDEN["trimtab.round.v1"]) | {"cluster": CLUSTER}
    summary["data"] |= {"cluster": CLUSTER, "round": action["data"]["round"]}
    publish(stage, action)
    publish(stage, summary, to=stage.topics.audit)
    return action


def results(stage: Stage) -> list[dict[str, Any]]:
    """The results, in order."""
    return stage.events(stage.topics.input, RESULT)
