"""Collector, controller and executor beside a real Pulsar, in this process or as processes of their own.

Brokers on one host report the host's CPU and bandwidth, so they are balanced by declared capacity. What is measured is
what the brokers themselves report. Rounds are about as short as the brokers' statistics, so ``hold_unsettled_brokers``
is on: without it, an executor on a busy machine makes two rounds decide on loads from before the moves.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec

from deploy.local.pulsar import LocalPulsar
from policies.splitting.ranges import Bundle
from streaming.collector.metrics import CollectorMetrics
from streaming.collector.pulsar import PulsarCollector
from streaming.collector.reports import read_report
from streaming.contract.messages import type_of
from streaming.executor.metrics import ExecutorMetrics
from streaming.executor.pulsar import ExecutorLoop, start
from streaming.settings import PulsarTarget, Settings, load
from tests.streaming.events import control
from tests.support.actions import golden_action, publish, results
from tests.support.processes import TRIMTAB, Child, Running, Value, Warm, WarmRun, until
from tests.support.pulsar import CLUSTER, Lab, passing_errors_are_false, section_of, target_of
from tests.support.stage import Stage


class Heard:
    """Keeps the events of a collector; an ``EventSink``."""

    def __init__(self) -> None:
        self.values: list[bytes] = []

    def send(self, key: str, value: bytes) -> None:
        """See ``EventSink``."""
        assert key == CLUSTER
        self.values.append(value)

    def flush(self) -> None:
        """Nothing to do: all events are here."""

    def close(self) -> None:
        """Nothing to close."""

    def of(self, kind: type[msgspec.Struct]) -> dict[str, dict[str, object]]:
        """`data` of the newest event of a type, by subject."""
        events = [json.loads(value) for value in self.values]
        return {each["subject"]: each["data"] for each in events if each["type"] == type_of(kind)}


def collector(target: PulsarTarget, heard: Heard, *, settings: Settings | None = None) -> PulsarCollector:
    """A collector of ``CLUSTER``, with the default settings if none are given."""
    return PulsarCollector(
        settings or Settings(), CollectorMetrics(CLUSTER), cluster=CLUSTER, target=target, sink=heard
    )


class Commander:
    """Publishes actions on a stage's topics as a controller would, and reads their results."""

    def __init__(self, stage: Stage, pulsar: LocalPulsar, *, verify_timeout_s: int = 15) -> None:
        self.stage = stage
        target = section_of(target_of(pulsar))
        target += f"verify_timeout_s = {verify_timeout_s}\n"
        self.config = stage.settings(base=target)
        self.settings: Settings = load(file=self.config, flags={}, environ={}).settings

    def say(self, kind: str, bundle: Bundle, *, epoch: int | None = 1, id_: str = "", **data: Any) -> str:
        """Publish an action; returns its id."""
        event = golden_action(kind, id_=id_, bundle=str(bundle), **data)
        return publish(self.stage, event, epoch=epoch)

    def unload(self, bundle: Bundle, *, owner: str, to: str | None, **more: Any) -> str:
        precondition = {"owner": owner, "range": str(bundle.range)}
        return self.say("unload", bundle, precondition=precondition, destination_broker=to, **more)

    def split(self, bundle: Bundle, *, owner: str, at: list[int], **more: Any) -> str:
        precondition = {"owner": owner, "range": str(bundle.range)}
        return self.say("split", bundle, precondition=precondition, boundaries=at, **more)

    def control(self, **data: object) -> None:
        """Publish a control event of this moment."""
        now_s = datetime.now(UTC).timestamp()
        event = control(time_s=now_s, cluster=CLUSTER, id=uuid4().hex, data=data)
        self.stage.send([event], to=self.stage.topics.control)

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

    def results(self) -> dict[str, dict[str, Any]]:
        """`data` of the newest result of each action."""
        return {each["subject"]: each["data"] for each in results(self.stage)}

    def results_count(self) -> int:
        return len(self.stage.values(self.stage.topics.input))


SETTINGS = """
[pulsar]
shedding_policy = "{policy}"
bundle_average_samples = 1

[pulsar.rounds]
length_s = 6
lateness_s = 1
warmup_rounds = 1
max_report_age_s = 30

[pulsar.usage]
cpu_weight = 0
bandwidth_in_weight = 0
bandwidth_out_weight = 0

[pulsar.capacity]
messages_per_s = 500

[pulsar.avg_shedder]
low_hit_count = 2
high_hit_count = 2
min_unload_messages_per_s = 10

[pulsar.split]
enabled = true
max_messages_per_s = 150
hit_count = 1

[pulsar.guards]
hold_unsettled_brokers = true
"""
BUNDLES = 9
"""Bundles of equal traffic, an odd number: half of the difference is never close to a whole number of them, so noise in the
rates does not choose how many move. From 9/0/0 AvgShedder goes to 5/4/0, then to 3/4/2; the planner to 3/3/3 at once."""


def gather(lab: Lab, broker: str) -> None:
    """Have one broker own every bundle; a bundle that lands elsewhere, as Pulsar lets it at times, is unloaded again."""

    def is_there(bundle: Bundle) -> bool:
        if lab.assigned(bundle) == broker:
            return True
        lab.admin.unload(bundle, destination=broker)
        return False

    for bundle in lab.bundles():
        lab.until(partial(passing_errors_are_false, partial(is_there, bundle)), f"{bundle} at {broker}")


def rates(lab: Lab, brokers: Sequence[str]) -> list[float]:
    """Messages/s into the lab's bundles at each broker, as the brokers report them; empty unless each is reported once.

    After a move a bundle is in both brokers' reports for about one stats period.
    """
    reports = [read_report(lab.admin.load_report(broker)).lastStats or {} for broker in brokers]
    mine = [{name: load for name, load in each.items() if lab.namespace in name} for each in reports]
    if sum(map(len, mine)) != lab.bundles_count:
        return []
    return [sum(load.messages_per_s for load in each.values()) for each in mine]


def all_at_first(lab: Lab) -> list[float]:
    """The rates once the first broker reports all of the traffic; empty before."""
    found = rates(lab, lab.pulsar.broker_ids)
    return found if found and found[0] > 30 * BUNDLES and not any(found[1:]) else []


@dataclass(frozen=True, slots=True)
class Trio:
    """What runs beside the cluster."""

    lab: Lab
    stage: Stage
    running: Running
    children: Sequence[Child]

    @property
    def alive(self) -> list[Running]:
        """All that must not end by itself."""
        return [self.lab.pulsar, self.running, *self.children]

    def until(self, condition: Callable[[], Value], what: str) -> Value:
        """Wait for the first true value of a condition and return it."""
        return until(condition, what=what, running=self.alive)

    def actions(self) -> dict[str, dict[str, Any]]:
        """`data` of every action with its type, by id."""
        events = self.stage.events(self.stage.topics.actions)
        return {event["id"]: {"type": event["type"], **event["data"]} for event in events}

    def results(self) -> list[tuple[str, dict[str, Any]]]:
        """Id of the action and `data` of every result, in order."""
        return [(each["subject"], each["data"]) for each in results(self.stage)]

    def rounds(self) -> list[dict[str, Any]]:
        """`data` of every summary."""
        return self.stage.data(self.stage.topics.audit)

    def wait_for_all_results(self) -> None:
        """Wait until every action that was decided has a result."""
        until(
            lambda: {id_ for id_, _ in self.results()} >= set(self.actions()),
            what="results",
            running=self.alive,
        )


@contextmanager
def controller(
    pulsar: LocalPulsar,
    stage: Stage,
    warm: Warm,
    *,
    policy: str = "avg-shedder",
    more: str = "",
    **overrides: object,
) -> Iterator[WarmRun]:
    """A running controller with ``more`` settings, and ``overrides`` as ``Stage.settings`` takes them.

    It begins before there is traffic, because a start takes as long as gathering the bundles; it decides nothing before the
    collector is there.
    """
    target = section_of(target_of(pulsar))
    config = stage.settings(base=f"{SETTINGS.format(policy=policy)}\n{more}\n{target}", **overrides)
    with warm.start("run", "--config", str(config), "--from", "earliest") as running:
        yield running
        assert running.terminate() == 0


@contextmanager
def trio(lab: Lab, stage: Stage, running: WarmRun, directory: Path) -> Iterator[Trio]:
    """Put collector and executor beside the controller and, if the block ends well, stop them in order."""
    until(lambda: "has epoch" in running.output, what="the controller", running=[lab.pulsar, running])
    with ExitStack() as stack:
        children = []
        for name in ("collect", "execute"):
            command = (*TRIMTAB, name, "pulsar", CLUSTER, "--config", str(stage.directory / "trimtab.toml"))
            children.append(Child(command, directory / f"{name}.log"))
            stack.callback(children[-1].close)
        yield Trio(lab, stage, running, children)
        for child in children:
            assert child.terminate() == 0


@contextmanager
def unbalanced(pulsar: LocalPulsar) -> Iterator[Lab]:
    """A namespace with traffic, all of it at the first broker."""
    lab = Lab(pulsar, bundles_count=BUNDLES)
    gather(lab, pulsar.broker_ids[0])
    with lab.traffic([lab.topic_in(each) for each in lab.bundles()]):
        yield lab
