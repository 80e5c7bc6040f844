"""Publishes actions as a controller would, lets the executor carry them out, and reads what became of them."""

import json
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from deploy.local.pulsar import LocalPulsar
from policies.splitting.ranges import Bundle
from state.outputs.actions import SPLIT_TYPE, UNLOAD_TYPE
from streaming.contract.envelope import EPOCH_HEADER
from streaming.contract.messages import ActionResultMessage, type_of
from streaming.executor.metrics import ExecutorMetrics
from streaming.executor.pulsar import ExecutorLoop, start
from streaming.settings import Settings, load
from tests.live.pulsar.lab import CLUSTER
from tests.live.stage import Stage

SOURCE = "/trimtab/controller"


class Commander:
    """Publishes actions on a stage's topics as a controller would, and reads their results."""

    def __init__(self, stage: Stage, pulsar: LocalPulsar, *, verify_timeout_s: int = 15) -> None:
        self.stage = stage
        target = f'[targets."{CLUSTER}".pulsar]\nadmin_url = "{pulsar.admin_url}"\n'
        target += f"verify_timeout_s = {verify_timeout_s}\n"
        self.config = stage.settings(base=target)
        self.settings: Settings = load(file=self.config, flags={}, environ={}).settings
        self._count = 0

    def say(
        self, kind: str, bundle: Bundle, *, epoch: int | None = 1, id_: str | None = None, **data: object
    ) -> str:
        """Publish an action; returns its id."""
        self._count += 1
        id_ = id_ or f"a{self._count}"
        data = {
            "cluster": CLUSTER,
            "bundle": str(bundle),
            "expires_at": (datetime.now(UTC) + timedelta(minutes=5)).isoformat(),
            "dry_run": False,
            **data,
        }
        event = {
            "specversion": "1.0",
            "id": id_,
            "source": SOURCE,
            "type": kind,
            "cluster": CLUSTER,
            "data": data,
        }
        headers = [] if epoch is None else [(EPOCH_HEADER, str(epoch).encode())]
        self.stage.send_raw(
            CLUSTER.encode(), json.dumps(event).encode(), to=self.stage.topics.actions, headers=headers
        )
        self.stage.flush()
        return id_

    def unload(self, bundle: Bundle, *, owner: str, to: str | None, **more: Any) -> str:
        precondition = {"owner": owner, "range": str(bundle.range)}
        return self.say(UNLOAD_TYPE, bundle, precondition=precondition, destination_broker=to, **more)

    def split(self, bundle: Bundle, *, owner: str, at: list[int], **more: Any) -> str:
        precondition = {"owner": owner, "range": str(bundle.range)}
        return self.say(SPLIT_TYPE, bundle, precondition=precondition, boundaries=at, **more)

    def control(self, **data: object) -> None:
        event = {
            "specversion": "1.0",
            "id": uuid4().hex,
            "source": "/operator",
            "type": "trimtab.control.v1",
            "subject": "control",
            "time": datetime.now(UTC).isoformat(),
            "cluster": CLUSTER,
            "data": data,
        }
        self.stage.send([json.dumps(event).encode()], to=self.stage.topics.control)

    def clear_control(self, tombstone: bytes | None) -> None:
        """Write a value that compaction takes as the deletion of the key."""
        self.stage.send_raw(CLUSTER.encode(), tombstone, to=self.stage.topics.control)
        self.stage.flush()

    def start(self, stack: ExitStack, *, dry_run: bool = False) -> ExecutorLoop:
        target = self.settings.targets[CLUSTER].pulsar
        return start(
            stack, self.settings, ExecutorMetrics(CLUSTER), cluster=CLUSTER, target=target, dry_run=dry_run
        )

    def execute(self, *, dry_run: bool = False) -> None:
        """Deal with all actions that are there, as a newly started process would."""
        with ExitStack() as stack:
            self.start(stack, dry_run=dry_run).run(once=True)

    def results(self) -> dict[str, dict[str, object]]:
        """`data` of the newest result of each action."""
        events = [json.loads(value) for value in self.stage.values(self.stage.topics.input)]
        return {
            each["subject"]: each["data"] for each in events if each["type"] == type_of(ActionResultMessage)
        }

    def results_count(self) -> int:
        return len(self.stage.values(self.stage.topics.input))
