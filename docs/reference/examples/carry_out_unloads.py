"""Carry out trimtab's unloads of one Pulsar cluster: a complete consumer of its actions.

    python carry_out_unloads.py --bootstrap broker:9092 --cluster east-1

Needs kafka-python and nothing else. Prints a line for every action: what was done with it, and why. Every check below is
one a consumer has to make; docs/reference/consumers.md says why.
"""

import argparse
import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.consumer.fetcher import ConsumerRecord
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

UNLOAD = "trimtab.action.unload.v1"
ADMIN_TIMEOUT_S = 20
AGAIN_S = 5
MAX_AHEAD_S = 10
NOBODY_OWNS = 412


@dataclass
class Gate:
    """Which actions may be carried out, as far as the record itself tells."""

    cluster: str
    highest_epoch: dict[tuple[str, int], int] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)

    def refusal(self, record: ConsumerRecord, event: dict[str, Any]) -> str | None:
        """Why an action must not be carried out; None if it may be. Records of a partition have to come in their order."""
        epoch, highest = self.hear(record, event)
        if event["cluster"] != self.cluster:
            return "another cluster's"
        if event["type"] != UNLOAD:
            return f"{event['type']} is not for us"
        if event["data"]["dry_run"]:
            return "dry-run"
        if epoch < highest:
            return f"epoch {epoch} is stale, a controller with epoch {highest} has taken over"
        if event["id"] in self.seen:
            return "duplicate"
        if datetime.fromisoformat(event["data"]["expires_at"]) <= datetime.now(UTC):
            return f"expired at {event['data']['expires_at']}"
        return None

    def hear(self, record: ConsumerRecord, event: dict[str, Any]) -> tuple[int, int]:
        """Epoch of a record of whatever type and cluster, and the highest so far of its source in its partition."""
        epoch, at = int(dict(record.headers)["trimtab-epoch"]), (event["source"], record.partition)
        self.highest_epoch[at] = max(epoch, self.highest_epoch.get(at, epoch))
        return epoch, self.highest_epoch[at]

    def committed(self, partition: int) -> str:
        """What to commit beside the position in a partition."""
        return json.dumps(
            {source: epoch for (source, at), epoch in self.highest_epoch.items() if at == partition}
        )

    def begin(self, partition: int, metadata: str) -> None:
        """Reading begins, or begins again, where this was committed."""
        before = {at: epoch for at, epoch in self.highest_epoch.items() if at[1] != partition}
        known = {(source, partition): epoch for source, epoch in json.loads(metadata or "{}").items()}
        self.highest_epoch = before | known


class Control:
    """What operators have said of the cluster; read to its end before every action, so that a pause acts at once."""

    def __init__(self, bootstrap: str, topic: str, cluster: str) -> None:
        self._at = TopicPartition(topic, 0)
        self._cluster = cluster.encode()
        self._newest: tuple[float, str] = (0.0, "")
        self._data: dict[str, Any] = {}
        self._consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, group_id=None)
        self._consumer.assign([self._at])
        self._consumer.seek_to_beginning(self._at)

    def refusal(self, action: dict[str, Any]) -> str | None:
        """Why an action must not be carried out now, if so."""
        self._read()
        if self._data.get("paused") and holds(self._data):
            return "paused: the cluster is paused"
        unload = action["data"]
        places = {"drained_brokers": [unload["destination_broker"]]}
        places["maintenance_brokers"] = [unload["source_broker"], unload["destination_broker"]]
        places["maintenance_namespaces"] = [unload["bundle"].rpartition("/")[0]]
        for table, names in places.items():
            for name in names:
                spell = self._data.get(table, {}).get(name)
                if spell is not None and holds(spell):
                    return f"maintenance: {name} is in {table}"
        return None

    def _read(self) -> None:
        end = self._consumer.end_offsets([self._at])[self._at]
        while self._consumer.position(self._at) < end:
            for record in self._consumer.poll(timeout_ms=200).get(self._at, []):
                if record.key == self._cluster and record.value:
                    self._take(json.loads(record.value), record.timestamp / 1000)

    def close(self) -> None:
        self._consumer.close()

    def _take(self, event: dict[str, Any], appended_s: float) -> None:
        """The newest event applies: greatest time, then greatest id. A time ahead of the log would hide later events."""
        time_s = datetime.fromisoformat(event["time"]).timestamp()
        key = (appended_s if time_s > appended_s + MAX_AHEAD_S else time_s, event["id"])
        if key > self._newest:
            self._newest = key
            self._data = event["data"]


def holds(spell: dict[str, Any]) -> bool:
    """A pause or a maintenance may end by itself."""
    until = spell.get("until")
    return not until or datetime.fromisoformat(until) > datetime.now(UTC)


def owns(broker: str, bundle: str) -> bool:
    """Whether a broker owns a bundle now: it answers itself, or redirects to the owner, or says that there is none.

    The topic need not be there. Do not ask for `ownedNamespaces`: a broker that takes bundles over just then can hang for ever.
    """
    namespace, _, bounds = bundle.rpartition("/")
    topic = quote(f"persistent://{namespace}/none", safe="")
    url = f"http://{broker}/admin/v2/namespaces/{namespace}/{bounds}/topicHashPositions?topics={topic}"
    try:
        with urllib.request.urlopen(url, timeout=ADMIN_TIMEOUT_S) as answer:
            return str(answer.url).startswith(f"http://{broker}/")
    except urllib.error.HTTPError as error:
        if error.code != NOBODY_OWNS:
            raise
        return False


def unload(broker: str, bundle: str, destination: str | None) -> None:
    namespace, _, bounds = bundle.rpartition("/")
    query = "" if destination is None else f"?destinationBroker={quote(destination)}"
    url = f"http://{broker}/admin/v2/namespaces/{namespace}/{bounds}/unload{query}"
    request = urllib.request.Request(url, method="PUT", data=b"")
    urllib.request.urlopen(request, timeout=ADMIN_TIMEOUT_S).close()


def carry_out(action: dict[str, Any]) -> tuple[str, str]:
    """Outcome and reason. An unload to where the bundle already is would really unload it, so the owner is checked."""
    data = action["data"]
    owner, bundle = data["precondition"]["owner"], data["bundle"]
    try:
        if not owns(owner, bundle):
            return "skipped", f"{owner} does not own it any more"
        unload(owner, bundle, data["destination_broker"])
    except (urllib.error.URLError, TimeoutError) as error:
        return "failed", str(error)
    return "succeeded", f"asked {owner}"


def result(action: dict[str, Any], outcome: str, reason: str) -> bytes:
    """What trimtab wants to hear: it ends the action's flight, and after a failure the bundle's rest, too."""
    event = {
        "specversion": "1.0",
        "id": f"result/{action['id']}",
        "source": f"/executor/pulsar/{action['cluster']}",
        "type": "trimtab.action-result.v1",
        "subject": action["id"],
        "time": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "cluster": action["cluster"],
        "datacontenttype": "application/json",
        "data": {"outcome": outcome, "reason": reason},
    }
    return json.dumps(event).encode()


def actions(consumer: KafkaConsumer, gate: Gate) -> Iterator[tuple[ConsumerRecord, dict[str, Any]]]:
    """Every record; its offset is committed once it is dealt with, so a crash repeats the last one at most.

    The epochs heard in its partition are committed with it: whoever goes on there knows whose actions are out of date.
    """
    begun: set[TopicPartition] = set()
    for record in consumer:
        at = TopicPartition(record.topic, record.partition)
        if at not in begun:
            begun.add(at)
            committed = consumer.committed(at, metadata=True)
            gate.begin(at.partition, "" if committed is None else committed.metadata)
        yield record, json.loads(record.value)
        consumer.commit({at: OffsetAndMetadata(record.offset + 1, gate.committed(at.partition), -1)})


def main() -> None:
    asked = argparse.ArgumentParser(description="Carry out trimtab's unloads of one Pulsar cluster.")
    asked.add_argument("--bootstrap", required=True, help="Kafka, host:port")
    asked.add_argument("--cluster", required=True, help="the cluster's name, in trimtab and in Pulsar")
    asked.add_argument("--actions", default="trimtab.actions")
    asked.add_argument("--control", default="trimtab.control")
    asked.add_argument("--input", default="trimtab.input", help="where results go")
    asked.add_argument("--group", default="unloader", help="consumer group")
    options = asked.parse_args()

    gate = Gate(options.cluster)
    while True:
        try:
            serve(options, gate)
        except KafkaError as error:  # what was not committed comes again
            print(f"trying again in {AGAIN_S} s: {error!r}", flush=True)
            time.sleep(AGAIN_S)


def serve(options: argparse.Namespace, gate: Gate) -> None:
    """Deal with one action after another; raises KafkaError when the brokers do not answer."""
    with ExitStack() as stack:
        control = Control(options.bootstrap, options.control, options.cluster)
        stack.callback(control.close)
        producer = KafkaProducer(bootstrap_servers=options.bootstrap, acks="all")
        stack.callback(producer.close, timeout=0)
        consumer = KafkaConsumer(
            options.actions,
            bootstrap_servers=options.bootstrap,
            group_id=f"{options.group}.{options.cluster}",
            isolation_level="read_committed",  # what is not committed was never decided
            enable_auto_commit=False,
            auto_offset_reset="earliest",  # old ones have expired; "latest" could miss one while starting
            max_poll_records=1,  # so that a commit covers only what is dealt with
        )
        stack.callback(consumer.close, autocommit=False)
        deal_with_all(consumer, producer, control, gate, options.input)


def deal_with_all(
    consumer: KafkaConsumer, producer: KafkaProducer, control: Control, gate: Gate, input_topic: str
) -> None:
    for record, action in actions(consumer, gate):
        refusal = gate.refusal(record, action)
        held = control.refusal(action) if refusal is None else None
        if held is not None:
            outcome, reason = "skipped", held
        elif refusal is None:
            outcome, reason = carry_out(action)
        else:
            print(f"{action['id']}: skipped: {refusal}", flush=True)
            continue
        sent = producer.send(
            input_topic, key=action["cluster"].encode(), value=result(action, outcome, reason)
        )
        sent.get(timeout=ADMIN_TIMEOUT_S)
        gate.seen.add(action["id"])
        print(f"{action['id']}: {outcome}: {reason}", flush=True)


if __name__ == "__main__":
    main()
