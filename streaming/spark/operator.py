"""The stateful operator: one cluster's records of a micro-batch through its controller.

Invariants: a cluster's records are taken in source order (Spark does not promise it, so their coordinates travel
along); memory is written once, after the last record; what is yielded depends on the records and the memory alone.
Runs in Spark's Python workers; knows no clock, no broker and no metrics.
"""

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import (
    MapState,
    StatefulProcessor,
    StatefulProcessorHandle,
    ValueState,
)
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from state.controller import Controller
from state.engine.closing import Identity
from state.engine.store import WaitingKey
from state.outputs import Output
from state.settings import SettingsSource
from streaming.contract.encode import source_of
from streaming.contract.origin import Origin
from streaming.intake.observation import encode
from streaming.intake.observing import event_observation
from streaming.intake.records import Intake, Record
from streaming.settings.accepted import EVERY_CLUSTER, AcceptedClusters
from streaming.spark.rebuilt import put
from streaming.spark.rows import of_observation, of_output, refused_row
from streaming.spark.spool import in_source_order

_VALUE = StructType([StructField("value", BinaryType())])
_WAITING_KEY = StructType(
    [
        StructField("round", LongType()),
        StructField("kind", StringType()),
        StructField("broker", StringType()),
    ]
)


class SparkStore:
    """``state.engine.store.Store`` on Spark's state handle."""

    def __init__(self, handle: StatefulProcessorHandle) -> None:
        self._header: ValueState = handle.getValueState("header", _VALUE)
        self._fleet: ValueState = handle.getValueState("fleet", _VALUE)
        self._waiting: MapState = handle.getMapState("waiting", _WAITING_KEY, _VALUE)

    def header(self) -> bytes | None:
        return _value(self._header.get())

    def put_header(self, value: bytes) -> None:
        self._header.update((value,))

    def fleet(self) -> bytes | None:
        return _value(self._fleet.get())

    def put_fleet(self, value: bytes) -> None:
        self._fleet.update((value,))

    def waiting(self, key: WaitingKey) -> bytes | None:
        return _value(self._waiting.getValue(key))

    def all_waiting(self) -> Iterator[tuple[WaitingKey, bytes]]:
        for key, value in self._waiting.iterator():
            yield WaitingKey(int(key[0]), key[1], str(key[2])), bytes(value[0])

    def put_waiting(self, key: WaitingKey, value: bytes) -> None:
        self._waiting.updateValue(key, (value,))

    def remove_waiting(self, key: WaitingKey) -> None:
        self._waiting.removeKey(key)

    def clear_waiting(self) -> None:
        self._waiting.clear()

    def clear(self) -> None:
        self._header.clear()
        self._fleet.clear()
        self._waiting.clear()


def _value(found: tuple[Any, ...] | None) -> bytes | None:
    return None if found is None else bytes(found[0])


def at_cluster(cluster: str) -> str:
    """The note on an error of the operator that says whose records it was about."""
    return f"while the records of the cluster {cluster!r} were taken"


class ClusterProcessor(StatefulProcessor):
    """``transformWithState`` keyed by cluster; no timers, so an idle topic costs no batches."""

    def __init__(
        self,
        *,
        name: str,
        identity: Identity,
        settings: SettingsSource,
        max_record_bytes: int,
        accepted: AcceptedClusters = EVERY_CLUSTER,
    ) -> None:
        self._source = source_of(name)
        self._identity = identity
        self._settings = settings
        self._max_record_bytes = max_record_bytes
        self._accepted = accepted

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Bind the state variables of this task."""
        self._store = SparkStore(handle)

    def handleInitialState(  # noqa: N802  Spark's name
        self,
        key: Any,  # noqa: ARG002  the row has it
        initialState: Row,  # noqa: N803
        timerValues: object,  # noqa: ARG002, N803
    ) -> None:
        """Memory that was rebuilt elsewhere, before the first records of a new query."""
        put(self._store, initialState)

    def handleInputRows(  # noqa: N802  Spark's name
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: object,  # noqa: ARG002, N803  Spark passes it by keyword
    ) -> Iterator[Row]:
        """All records of one cluster in this micro-batch; an error names the cluster."""
        cluster = str(key[0])
        try:
            yield from self._decide(cluster, rows)
        except Exception as error:
            error.add_note(at_cluster(cluster))
            raise

    def _decide(self, cluster: str, rows: Iterator[Row]) -> Iterator[Row]:
        controller: Controller | None = None

        def controller_of(_cluster: str) -> Controller:
            nonlocal controller
            if controller is None:
                controller = Controller(
                    cluster, self._store, identity=self._identity, settings=self._settings
                )
            return controller

        intake = Intake(controller_of, max_record_bytes=self._max_record_bytes, accepted=self._accepted)
        for record in in_source_order((_record(row), row.chunk) for row in rows):
            outputs, refused = intake.take(record)
            yield from self._rows(outputs)
            if refused is not None:
                yield refused_row(refused, self._source)
        forgotten = controller is not None and controller.is_forgotten
        if controller is not None:
            controller.commit()
        is_known = controller is not None and controller.is_known
        observation = event_observation(
            cluster if is_known or forgotten else "", intake.tally, forgotten=forgotten
        )
        yield of_observation(cluster, encode(observation))

    def _rows(self, outputs: list[Output]) -> Iterator[Row]:
        for output in outputs:
            yield of_output(output, self._source)

    def close(self) -> None:
        """Nothing to release: the state belongs to Spark."""


def _record(row: Row) -> Record:
    oversize = None if row.oversize_bytes is None else (int(row.oversize_bytes), str(row.sha256))
    return Record(
        value=None if row.value is None else bytes(row.value),
        origin=Origin(topic=row.topic, partition=row.partition, offset=row.offset),
        key=row.key,
        appended_ms=row.appended_ms,
        is_control=row.is_control,
        oversize=oversize,
    )
