"""What the operator does with one cluster's records of a micro-batch. It is sent to Spark's workers, pickled."""

from collections.abc import Iterator

from pyspark.sql import Row

from state.closing import Identity
from state.controller import Controller
from state.outputs import Output
from state.settings import SettingsSource
from state.store import Store
from streaming.contract.encode import source_of
from streaming.contract.origin import Origin
from streaming.settings.accepted import EVERY_CLUSTER, AcceptedClusters
from streaming.spark.rows import of_observation, of_output, refused_row
from streaming.spark.spool import in_source_order
from streaming.transport.intake import Intake, Record, encode_observation, event_observation


class Deciding:
    """Decides on records for the controller ``name``."""

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

    def decide(self, cluster: str, rows: Iterator[Row], store: Store) -> Iterator[Row]:
        """Rows of ``OUTPUT_SCHEMA``; the store is written at the end."""
        controller: Controller | None = None

        def controller_of(_cluster: str) -> Controller:
            nonlocal controller
            if controller is None:
                controller = Controller(cluster, store, identity=self._identity, settings=self._settings)
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
        yield of_observation(cluster, encode_observation(observation))

    def _rows(self, outputs: list[Output]) -> Iterator[Row]:
        for output in outputs:
            yield of_output(output, self._source)


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
