"""The Pulsar source: every message once, the same again when a batch is read again, and lost data never unnoticed."""

import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pulsar as pulsar_client
import pytest
from pyspark.sql import DataFrame
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from deploy.local.pulsar import LocalPulsar
from streaming.pulsar.admin import PulsarAdmin
from streaming.pulsar.http import HttpClient
from streaming.pulsar.log import NonPersistentTopic, PartitionLogs
from streaming.pulsar.positions import DataLoss, topic_path
from streaming.settings import Settings, SparkSettings
from streaming.spark import pulsar_source, session
from streaming.spark.pulsar_source import SCHEMA, PulsarReader, PulsarSource
from tests.support.processes import Warm, until
from tests.support.pulsar import Lab, connected


def main(arguments: Sequence[str]) -> None:
    """Ends when it has taken everything that was there at the start."""
    options, checkpoint, taken = arguments
    spark = (
        session.Start().connect(Settings(spark=SparkSettings(master="local[1]", driver_memory="512m"))).spark
    )

    def keep(batch: DataFrame, _id: int) -> None:
        with Path(taken).open("a") as lines:
            lines.writelines(f"{bytes(row.value).decode()}\n" for row in batch.collect())

    try:
        pulsar_source.register(spark)
        frame = spark.readStream.format("pulsar").options(**json.loads(options)).load()
        writer = frame.writeStream.foreachBatch(keep).option("checkpointLocation", checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()
    finally:
        spark.stop()


if __name__ == "__main__":
    main(sys.argv[1:])


pytestmark = pytest.mark.live

ALL = ReadAllAvailable()
_VALUE, _OFFSET, _TIME = (SCHEMA.fieldNames().index(name) for name in ("value", "offset", "publish_ms"))


@pytest.fixture(scope="module")
def client(pulsar: LocalPulsar) -> Iterator[pulsar_client.Client]:
    made = connected(pulsar)
    yield made
    made.close()


@pytest.fixture
def lab(pulsar: LocalPulsar) -> Lab:
    return Lab(pulsar)


def options(lab: Lab, topic: str, **more: str) -> dict[str, str]:
    return {
        "service_url": lab.pulsar.service_url,
        "admin_url": lab.pulsar.admin_url,
        "topics": topic,
        "subscription": "trimtab",
        **more,
    }


def reader(lab: Lab, topic: str, **more: str) -> PulsarReader:
    """A reader as in a newly started process."""
    pulsar_source._protect_once.cache_clear()
    return PulsarSource(options(lab, topic, **more)).streamReader(SCHEMA)


def produce(client: pulsar_client.Client, topic: str, values: list[str], *, batch: int = 1) -> None:
    producer = client.create_producer(
        topic,
        batching_enabled=batch > 1,
        batching_max_messages=max(2, batch),
        batching_max_publish_delay_ms=1000,
    )
    for value in values:
        producer.send_async(value.encode(), None, partition_key=value)
    producer.flush()
    producer.close()


def rows(source: PulsarReader, start: dict[str, str], end: dict[str, str]) -> list[tuple[Any, ...]]:
    return [row for part in source.partitions(start, end) for row in source.read(part)]


def values(found: list[tuple[Any, ...]]) -> list[str]:
    return [row[_VALUE].decode() for row in found]


def test_every_message_is_read_once_in_batches_of_bounded_size(lab: Lab, client: pulsar_client.Client):
    topic = f"persistent://{lab.namespace}/many"
    lab.put(f"persistent/{lab.namespace}/many/partitions", 2)
    source = reader(lab, topic, max_entries_per_trigger="120")
    at = source.initialOffset()
    alone = [f"a{number}" for number in range(450)]
    together = [f"b{number}" for number in range(300)]
    produce(client, topic, alone)
    produce(client, topic, together, batch=7)
    found: list[tuple[Any, ...]] = []
    sizes = []
    while (end := source.latestOffset(at, source.getDefaultReadLimit())) != at:
        batch = rows(source, at, end)
        assert rows(source, at, end) == batch, "read again: the same"
        found += batch
        sizes.append(sum(value.startswith("a") for value in values(batch)))
        source.commit(at)
        at = end
    assert sorted(values(found)) == sorted(alone + together)
    assert max(sizes) <= 120
    offsets = [(row[3], row[_OFFSET]) for row in found]
    assert len(set(offsets)) == len(offsets)
    for partition in (0, 1):
        mine = [offset for number, offset in offsets if number == partition]
        assert mine == sorted(mine)
    assert {end.split(":")[0] for end in at.values()} != {"0"}


def test_a_first_start_may_begin_at_the_beginning_the_end_or_a_time(lab: Lab, client: pulsar_client.Client):
    topic = f"persistent://{lab.namespace}/begin"
    produce(client, topic, ["old"])
    first = reader(lab, topic)
    begin = first.initialOffset()
    (old,) = rows(first, begin, first.latestOffset(begin, ALL))
    until(lambda: time.time() * 1000 > old[_TIME] + 5, what="another millisecond")
    produce(client, topic, ["new", "newer"])
    for starting, wanted in (
        ("earliest", ["old", "new", "newer"]),
        ("latest", []),
        (str(old[_TIME] + 1), ["new", "newer"]),
        (str(old[_TIME]), ["old", "new", "newer"]),
        (str(old[_TIME] + 3_600_000), []),
    ):
        source = reader(lab, topic, starting=starting)
        at = source.initialOffset()
        assert values(rows(source, at, source.latestOffset(at, ALL))) == wanted, starting


def test_new_partitions_are_read_from_their_beginning(lab: Lab, client: pulsar_client.Client):
    topic = f"persistent://{lab.namespace}/growing"
    lab.put(f"persistent/{lab.namespace}/growing/partitions", 1)
    source = reader(lab, topic)
    at = source.initialOffset()
    assert source.latestOffset(at, ALL) == at
    lab.post(f"persistent/{lab.namespace}/growing/partitions", 3)
    produce(client, f"{topic}-partition-2", ["x", "y"])
    end = source.latestOffset(at, ALL)
    assert values(rows(source, at, end)) == ["x", "y"]
    assert len(end) == 3
    assert source.latestOffset(end, ReadMaxRows(1)) == end


def test_the_subscription_keeps_what_is_unread_and_a_loss_is_noticed(lab: Lab, client: pulsar_client.Client):
    topic = f"persistent://{lab.namespace}/kept"
    path = f"persistent/{lab.namespace}/kept"
    produce(client, topic, ["first"])
    source = reader(lab, topic)
    begin = source.initialOffset()
    produce(client, topic, [str(number) for number in range(350)])
    lab.post(f"{path}/trim")
    end = source.latestOffset(begin, ReadMaxRows(200))
    assert len(rows(source, begin, end)) == 200, "nothing acknowledged it, nothing trimmed it"
    source.commit(end)
    until(
        lambda: lab.post(f"{path}/trim") or _first_ledger(lab, topic) > _ledger(begin),
        what="a trimmed ledger",
    )
    rest = source.latestOffset(end, ALL)
    assert len(rows(source, end, rest)) == 151, "what is acknowledged goes, the rest stays"
    with pytest.raises(DataLoss, match=r"was trimmed.*--fresh"):
        source.latestOffset(begin, ALL)
    allowed = reader(lab, topic, fail_on_data_loss="false")
    assert allowed.latestOffset(begin, ALL) == rest


def test_who_only_looks_neither_makes_the_subscription_nor_moves_it(lab: Lab, client: pulsar_client.Client):
    topic = f"persistent://{lab.namespace}/looked-at"
    produce(client, topic, ["first", "second"])

    def cursors() -> dict[str, str]:
        answer = PulsarAdmin(HttpClient(lab.target), lab.target).get(f"{topic_path(topic)}/internalStats")
        return {name: cursor["markDeletePosition"] for name, cursor in json.loads(answer)["cursors"].items()}

    def look() -> None:
        looking = reader(lab, topic, moves_subscription="false")
        begin = looking.initialOffset()
        end = looking.latestOffset(begin, ALL)
        assert values(rows(looking, begin, end)) == ["first", "second"]
        looking.commit(end)

    look()
    assert "trimtab" not in cursors()
    reader(lab, topic).initialOffset()
    before = cursors()["trimtab"]
    look()
    assert cursors()["trimtab"] == before


def test_a_topic_that_was_made_anew_is_not_taken_for_the_old_one(lab: Lab, client: pulsar_client.Client):
    topic = f"persistent://{lab.namespace}/again"
    produce(client, topic, ["old"])
    source = reader(lab, topic)
    begin = source.initialOffset()
    end = source.latestOffset(begin, ALL)
    lab.delete(f"persistent/{lab.namespace}/again?force=true")
    produce(client, topic, ["new"])
    with pytest.raises(DataLoss, match="or the topic was made anew"):
        reader(lab, topic).latestOffset(end, ALL)


def test_a_partition_nobody_read_from_goes_on_after_unloads(lab: Lab, client: pulsar_client.Client):
    topic, path = f"persistent://{lab.namespace}/idle", f"persistent/{lab.namespace}/idle"
    lab.put(path, known=(409,))
    source = reader(lab, topic)
    begin = source.initialOffset()
    for _ in range(2):
        lab.put(f"{path}/unload")
        assert reader(lab, topic).latestOffset(begin, ALL) == begin, "no batch for nothing"
    produce(client, topic, ["first"])
    source = reader(lab, topic)
    end = source.latestOffset(begin, ALL)
    assert values(rows(source, begin, end)) == ["first"]
    assert source.latestOffset(end, ALL) == end
    lab.put(f"{path}/unload")
    assert reader(lab, topic).latestOffset(end, ALL) == end

    lab.delete(f"{path}/truncate")
    lab.put(f"{path}/unload")
    with pytest.raises(DataLoss, match=r"was trimmed.*--fresh"):
        reader(lab, topic).latestOffset(begin, ALL)
    lab.delete(f"{path}?force=true")
    lab.put(path, known=(409,))
    for _ in range(2):
        with pytest.raises(DataLoss, match="somebody removed the subscription"):
            reader(lab, topic).latestOffset(begin, ALL)


def test_batch_after_batch_costs_the_brokers_no_new_reader(lab: Lab, client: pulsar_client.Client):
    topic = f"persistent://{lab.namespace}/steady"
    source = reader(lab, topic)
    produce(client, topic, ["0"])
    at = source.initialOffset()

    def next_batch(value: str) -> None:
        nonlocal at
        produce(client, topic, [value])
        end = source.latestOffset(at, ALL)
        assert values(rows(source, at, end))[-1] == value
        source.commit(end)
        at = end

    next_batch("1")
    before = _said_of_readers(lab, topic)
    assert before, "a reader is made and a consumer, once"
    for number in range(2, 7):
        next_batch(str(number))
    assert _said_of_readers(lab, topic) == before


def _said_of_readers(lab: Lab, topic: str) -> list[str]:
    """What the brokers logged of subscriptions to a topic and of cursors."""
    files = lab.pulsar.directory.glob("broker*.log")
    lines = [line for file in files for line in file.read_text(errors="replace").splitlines()]
    mine = [line for line in lines if topic in line or topic.replace("://", "/") in line]
    return [line for line in mine if "ubscri" in line or "cursor" in line.lower()]


def test_what_cannot_be_read_is_refused_with_an_explanation(lab: Lab):
    with pytest.raises(NonPersistentTopic, match="could not be read again"):
        reader(lab, f"non-persistent://{lab.namespace}/gone").initialOffset()
    with pytest.raises(ValueError, match="needs the option subscription"):
        PulsarSource({**options(lab, "persistent://a/b/c"), "subscription": ""}).streamReader(SCHEMA)


def _first_ledger(lab: Lab, topic: str) -> int:
    return _ledger({"": str(PartitionLogs(lab.admin, subscription="trimtab").log(topic).first)})


def _ledger(offsets: dict[str, str]) -> int:
    (position,) = offsets.values()
    return int(position.partition(":")[0])


def test_a_spark_query_reads_on_after_a_restart(
    lab: Lab, client: pulsar_client.Client, warm: Warm, tmp_path: Path
):
    topic, taken = f"persistent://{lab.namespace}/spark", tmp_path / "taken"
    query = json.dumps(options(lab, topic, max_entries_per_trigger="40"))
    produce(client, topic, [])
    reader(lab, topic).initialOffset()  # its subscription protects what no query has seen yet
    wanted = [str(number) for number in range(150)]
    for part in (wanted[:100], wanted[100:]):
        produce(client, topic, part)
        with warm.start("-m", "tests.live.pulsar.test_source", query, str(tmp_path / "c"), str(taken)) as run:
            assert run.wait() == 0, run.output
    assert taken.read_text().splitlines() == wanted
