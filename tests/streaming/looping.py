"""An executor's loop with everything around it: topics are lists, and tests set the clock."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

from streaming.contract.messages import ActionResultData, ControlData
from streaming.executor.loop import _ANSWER, _NO_BATCH, _TURN, Topics
from streaming.executor.metrics import ExecutorMetrics
from streaming.executor.orders import Order, Skip
from streaming.executor.pulsar import ExecutorLoop, PulsarAction
from streaming.process.serve import Heartbeat
from streaming.transport.errors import PublishError
from streaming.transport.side import ActionRecord, PartitionEpochs

NOW_S = 1_800_000_000.0


@dataclass(slots=True)
class Topic:
    """An actions topic as the loop sees it."""

    values: list[bytes] = field(default_factory=list)
    epochs: dict[bytes, bytes] = field(default_factory=dict)
    """Epoch headers by record value; the header is 1 for a value that is not here."""
    epochs_heard: PartitionEpochs | None = None
    """The loop's epochs; ``drop`` makes them begin anew."""
    position: int = 0
    committed: int = 0
    commits_failing: int = 0
    is_lost: bool = False
    stays: int = 0

    def poll(self, *, timeout_s: float) -> list[ActionRecord]:
        del timeout_s
        self.is_lost = False
        found, self.position = self.values[self.position :], len(self.values)
        return [ActionRecord(value=value, epoch_header=self.epochs.get(value, b"1")) for value in found]

    def keep_polled(self) -> None:
        self.stays += 1
        if self.is_lost:
            raise PublishError("this executor lost its actions")

    def commit(self) -> None:
        if self.commits_failing:
            self.commits_failing -= 1
            raise PublishError("not committed")
        self.committed = self.position

    def drop(self) -> None:
        self.position = self.committed
        if self.epochs_heard is not None:
            self.epochs_heard.begin(0, {})

    def is_at_end(self) -> bool:
        return self.position == len(self.values)


class Control:
    """Stands in for a ``ControlView``."""

    def __init__(self) -> None:
        self.data: ControlData | None = None
        self.failing = 0
        self.asked = 0

    def newest(self) -> ControlData | None:
        self.asked += 1
        if self.failing:
            self.failing -= 1
            raise PublishError("no leader")
        return self.data

    def close(self) -> None:
        pass


@dataclass(slots=True)
class Results:
    """A sink whose writes are lost while ``failing``."""

    failing: int = 0
    handed: list[dict[str, object]] = field(default_factory=list)
    written: list[dict[str, object]] = field(default_factory=list)

    def send(self, key: str, value: bytes) -> None:
        del key
        self.handed.append(json.loads(value))

    def flush(self) -> None:
        handed, self.handed = self.handed, []
        if self.failing:
            self.failing -= 1
            raise PublishError("not written")
        self.written += handed

    def close(self) -> None:
        pass


@dataclass(slots=True)
class World:
    """An executor's loop with everything around it."""

    topic: Topic = field(default_factory=Topic)
    control: Control = field(default_factory=Control)
    results: Results = field(default_factory=Results)
    now_s: float = NOW_S
    called: list[str] = field(default_factory=list)
    before_call: Callable[[str], None] = lambda _: None
    loop: ExecutorLoop = field(init=False)

    def __post_init__(self) -> None:
        self.loop = ExecutorLoop(
            self,
            ExecutorMetrics("east-1"),
            Topics(actions=self.topic, control=self.control, results=self.results, epochs=PartitionEpochs()),
            cluster="east-1",
            concurrent_count=4,
            clock_s=lambda: self.now_s,
        )
        self.loop._heartbeat = Heartbeat(_TURN, _ANSWER, _NO_BATCH, clock_s=lambda: self.now_s)

    def carry_out(self, order: Order[PulsarAction], recheck: Callable[[], None]) -> ActionResultData | Skip:
        """Stands in for the executor: looks at the cluster, which may take a while, then makes the call."""
        self.before_call(order.id)
        recheck()
        self.called.append(order.id)
        return ActionResultData(outcome="succeeded")

    def say(
        self,
        id_: str,
        *,
        namespace: str = "t/n",
        range_: str = "0x00000000_0x40000000",
        kind: str = "unload",
        lives_s: float = 60.0,
    ) -> None:
        data = {
            "bundle": f"{namespace}/{range_}",
            "precondition": {"owner": "b1:8080", "range": range_},
            "expires_at": datetime.fromtimestamp(NOW_S + lives_s, UTC).isoformat(),
            "dry_run": False,
            "boundaries": [0x20000000],
        }
        event = {
            "id": id_,
            "source": "/c",
            "type": f"trimtab.action.{kind}.v1",
            "cluster": "east-1",
            "data": data,
        }
        self.topic.values.append(json.dumps(event).encode())

    def outcomes(self) -> dict[str, str]:
        return {str(each["subject"]): _said(each["data"]) for each in self.results.written}

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self.loop.run)
        thread.start()
        try:
            yield
        finally:
            self.loop.stop()
            thread.join(30)
            assert not thread.is_alive()


def _said(data: Mapping[str, str | None]) -> str:
    return " ".join(filter(None, (data["outcome"], (data.get("reason") or "").partition(":")[0])))
