"""Real examples: the recorded cluster is replayed, and the examples follow one of its decisions from the report to the result.

Events that the recording lacks are made up to fit it: the tick, the facts and the result that would have accompanied that
decision, a control event, and a record that is refused. They go through the same controller, which must refuse only that record.
"""

import gzip
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from deploy.docs.kafka_example import kafka_example
from state.closing import Identity
from state.outputs.actions import ROUND_TYPE, SPLIT_TYPE, UNLOAD_TYPE
from streaming.contract.encode import SkippedRange, encode_leader, encode_skipped
from streaming.contract.messages import (
    ActionResultData,
    ActionResultMessage,
    ApprovalMessage,
    BrokerLoadData,
    BrokerLoadMessage,
    ControlData,
    ControlMessage,
    Envelope,
    LoadReportMessage,
    PulsarBrokerFacts,
    PulsarClusterData,
    PulsarClusterMessage,
    TickData,
    TickMessage,
    TopicStatsMessage,
    type_of,
)
from streaming.contract.published import (
    LeaderMessage,
    RejectedMessage,
    RoundMessage,
    SkippedMessage,
    SplitMessage,
    UnloadMessage,
)
from streaming.controller.replay import Replay
from streaming.settings import ClusterSettingsSource, load
from streaming.settings.sections import TopicNames

Event = dict[str, Any]

RECORDING = Path("tests/recordings/pulsar-3-brokers.ndjson.gz")
SETTINGS = Path("tests/recordings/pulsar-3-brokers.toml")

_NO_FLAGS: Mapping[str, object] = {}
_SPLITTING: Mapping[str, object] = {
    "pulsar.split.enabled": True,
    "pulsar.split.max_messages_per_s": 300,
    "pulsar.split.hit_count": 1,
}

_ATTRIBUTES = (
    "specversion",
    "id",
    "source",
    "type",
    "subject",
    "time",
    "cluster",
    "datacontenttype",
    "data",
)
_COLLECTOR = "/collector/pulsar/lab"
_QUIET_BROKER = PulsarBrokerFacts(
    load_manager="ModularLoadManagerImpl",
    shedding_enabled=False,
    auto_split_enabled=False,
    split_algorithms=[
        "flow_or_qps_equally_divide",
        "range_equally_divide",
        "specified_positions_divide",
        "topic_count_equally_divide",
    ],
)
_EXECUTOR = "/executor/pulsar/lab"
_CARRIED_OUT_AFTER = timedelta(seconds=4, milliseconds=120)
_SWEPT_BEFORE = timedelta(milliseconds=500)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What went into the replay, what came out of it, and one example of every message type."""

    inputs: tuple[Event, ...]
    outputs: tuple[Event, ...]
    examples: dict[type[msgspec.Struct], Event]


def replay_recording(repository: Path) -> Recorded:
    """Replay the recording in mode ``act``, then the events made to fit it; takes about half a second."""
    packed = (repository / RECORDING).read_bytes()
    recorded = gzip.decompress(packed)
    out = io.BytesIO()
    replay = _replay(repository, out)
    replay.play(io.BytesIO(recorded), RECORDING.name)
    story = _Story(list(_events(recorded)), list(_events(out.getvalue())))
    made = story.make_inputs()
    lines = [json.dumps(event).encode() for event in made.values()]
    replay.play(io.BytesIO(b"\n".join((*lines, story.refused_example()))), TopicNames().input)
    replay.close_open()
    outputs = tuple(_events(out.getvalue()))
    rejected = [event for event in outputs if event["type"] == type_of(RejectedMessage)]
    if len(rejected) != 1:
        reasons = ", ".join(event["data"]["detail"] for event in rejected)
        raise RuntimeError(f"one record of the examples must be refused, not {len(rejected)}: {reasons}")
    split = _first_split(repository, recorded)
    asked, kafka_outputs, of_kafka = kafka_example(
        load(file=repository / SETTINGS, flags={}, environ={}).settings
    )
    approved = _approval_example()
    return Recorded(
        inputs=(*story.inputs, *made.values(), approved, *asked),
        outputs=(*outputs, split, _leader_example(), _skipped_example(), *kafka_outputs),
        examples={
            **story.find_example(),
            **made,
            SplitMessage: split,
            ApprovalMessage: approved,
            RejectedMessage: rejected[0],
            LeaderMessage: _leader_example(),
            SkippedMessage: _skipped_example(),
            **of_kafka,
        },
    )


def _approval_example() -> Event:
    """The event that a person writes to approve a proposal."""
    return {
        "specversion": "1.0",
        "id": "approval/2026-11-21T13:24:02.000Z/1f3a77c0/0",
        "source": "/operator/maria",
        "type": type_of(ApprovalMessage),
        "subject": "c3a1d1cb6c5db9f4d0d0f7f0b6c4de21",
        "time": "2026-11-21T13:24:02.000Z",
        "cluster": "lab",
        "datacontenttype": "application/json",
        "data": {"verdict": "approved", "who": "maria", "why": "looks right"},
    }


def _leader_example() -> Event:
    """The event of a controller that has taken over."""
    said_at = datetime(2026, 11, 21, 13, 20, tzinfo=UTC)
    epoch, said_ms = int(said_at.timestamp()), round(said_at.timestamp() * 1000)
    return dict(json.loads(encode_leader("trimtab", epoch=epoch, time_ms=said_ms)))


def _skipped_example() -> Event:
    """The event of a controller that was down for longer than its input keeps records."""
    gap = SkippedRange(
        topic=TopicNames().input, partition=0, read_until="1042", goes_on_from="5310", records_count=4268
    )
    said_ms = round(datetime(2026, 11, 21, 13, 21, 25, tzinfo=UTC).timestamp() * 1000)
    return dict(json.loads(encode_skipped([gap], name="trimtab", time_ms=said_ms)))


def _first_split(repository: Path, recorded: bytes) -> Event:
    """The recording once more, with limits so low that its heaviest bundle has to be cut."""
    out = io.BytesIO()
    replay = _replay(repository, out, _SPLITTING)
    replay.play(io.BytesIO(recorded), RECORDING.name)
    return next(event for event in _events(out.getvalue()) if event["type"] == SPLIT_TYPE)


def _replay(repository: Path, out: io.BytesIO, flags: Mapping[str, object] = _NO_FLAGS) -> Replay:
    settings = load(file=repository / SETTINGS, flags=flags, environ={}).settings
    controller = settings.controller
    return Replay(
        out,
        name=controller.name,
        identity=Identity(mode="act", action_ttl_s=controller.action_ttl_s),
        settings=ClusterSettingsSource(settings),
        max_record_bytes=controller.max_record_bytes,
    )


class _Story:
    """The first decision of the recording, and what belongs to it."""

    def __init__(self, inputs: list[Event], outputs: list[Event]) -> None:
        self.inputs = inputs
        self._outputs = outputs
        self._action = next(event for event in outputs if event["type"] == UNLOAD_TYPE)
        self._decided = datetime.fromisoformat(self._action["time"])

    def find_example(self) -> dict[type[msgspec.Struct], Event]:
        """The action, its round, and the newest report and statistics of the broker it relieves."""
        rounds = (event for event in self._outputs if event["type"] == ROUND_TYPE)
        return {
            LoadReportMessage: self._newest(LoadReportMessage),
            TopicStatsMessage: self._newest(TopicStatsMessage),
            UnloadMessage: self._action,
            RoundMessage: next(event for event in rounds if self._action["id"] in event["data"]["actions"]),
        }

    def make_inputs(self) -> dict[type[msgspec.Struct], Event]:
        """The events that a collector, an executor and an operator would have sent around the decision."""
        cluster, brokers = self._action["cluster"], sorted({event["subject"] for event in self.inputs})
        swept, done = self._decided - _SWEPT_BEFORE, self._decided + _CARRIED_OUT_AFTER
        events = (
            TickMessage(
                specversion="1.0",
                id=f"tick/{_text(swept)}",
                source=_COLLECTOR,
                subject="tick",
                time=swept,
                cluster=cluster,
                data=TickData(asked=brokers),
            ),
            PulsarClusterMessage(
                specversion="1.0",
                id=f"cluster/{_text(swept)}",
                source=_COLLECTOR,
                subject="cluster",
                time=swept,
                cluster=cluster,
                data=PulsarClusterData(
                    pulsar_cluster=cluster,
                    brokers=dict.fromkeys(brokers, _QUIET_BROKER),
                    isolation_policies={},
                    anti_affinity_groups={"spread": ["public/default", "public/orders"]},
                ),
            ),
            self._published(swept),
            ActionResultMessage(
                specversion="1.0",
                id=f"result/{self._action['id']}",
                source=_EXECUTOR,
                subject=self._action["id"],
                time=done,
                cluster=cluster,
                data=ActionResultData(outcome="succeeded"),
            ),
            ControlMessage(
                specversion="1.0",
                id=f"control/{_text(done)}",
                source="/operator/maria",
                subject="control",
                time=done,
                cluster=cluster,
                data=ControlData(
                    mode="act",
                    settings={"pulsar": {"avg_shedder": {"low_hit_count": 5}}},
                    who="maria",
                    why="calmer during the sale",
                ),
            ),
        )
        return {type(event): _event_of(event) for event in events}

    def _published(self, swept: datetime) -> BrokerLoadMessage:
        """The broker's load report as it would be with the extensible load manager: its two heaviest bundles, and all it owns."""
        report = self._newest(LoadReportMessage)
        data = report["data"]
        given = {name: data[name] for name in BrokerLoadData.__struct_fields__ if name in data}
        heaviest = sorted(data["lastStats"].items(), key=lambda each: float(each[1]["msgThroughputIn"]))[-2:]
        rates = data["msgThroughputIn"] + data["msgThroughputOut"]
        given |= {
            "weightedMaxEMA": data["bandwidthIn"]["usage"] / data["bandwidthIn"]["limit"],
            "msgThroughputEMA": rates,
            "updatedAt": int(1000 * datetime.fromisoformat(report["time"]).timestamp()),
            "topBundlesLoadData": [{"bundleName": name, "stats": stats} for name, stats in heaviest],
        }
        return BrokerLoadMessage(
            specversion="1.0",
            id=f"{report['subject']}/{_text(swept)}",
            source=_COLLECTOR,
            subject=report["subject"],
            time=swept,
            cluster=report["cluster"],
            data=msgspec.convert(given, BrokerLoadData),
        )

    def refused_example(self) -> bytes:
        """A record that lost its cluster on the way."""
        event = dict(self.make_inputs()[TickMessage])
        del event["cluster"]
        return json.dumps(event).encode()

    def _newest(self, message: type[msgspec.Struct]) -> Event:
        """The newest event of a type from the relieved broker, taken before the decision."""
        broker, tag = self._action["data"]["source_broker"], type_of(message)
        return max(
            (
                event
                for event in self.inputs
                if event["type"] == tag
                and event["subject"] == broker
                and event["time"] < self._action["time"]
            ),
            key=lambda event: event["time"],
        )


def _events(lines: bytes) -> Iterator[Event]:
    return map(json.loads, lines.splitlines())


def _event_of(message: Envelope) -> Event:
    """An event as a careful producer writes it: attributes in the usual order, without ``recordedtime``."""
    event = msgspec.to_builtins(message)
    event["time"] = _text(message.time)
    return {name: event[name] for name in _ATTRIBUTES}


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
