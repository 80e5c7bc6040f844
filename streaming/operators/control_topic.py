"""The control topic and what an operator's command does on it: read what is in force, write, read the write back.

It is on the input's side, whichever system that is. Writing waits for the brokers. Two operators who write at
once can still overwrite each other, because an event replaces the whole overlay; the second read finds that out.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from state.events import System
from state.settings import Mode
from streaming.contract.envelope import ReadEnvelope
from streaming.operators.overlay import ControlRecord, Planned, Standing
from streaming.process.exits import Refused
from streaming.settings import Settings
from streaming.systems import append_to_input, input_reader, output_reader


class ControlTopic:
    """Reads and writes control events. Raises ``exits.Refused``."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._topic = settings.topics.control

    def read(self) -> list[ControlRecord]:
        """The newest record of each cluster, and older ones that are not compacted yet, in order."""
        with input_reader(self._settings, self._topic, compacted=True) as reader:
            return [
                ControlRecord(
                    key=None if record.key is None else record.key.decode(errors="replace"),
                    value=record.value,
                    appended_ms=record.timestamp,
                    offset=record.offset,
                )
                for record in reader.read_to_end()
            ]

    def write(self, events: Sequence[Planned]) -> None:
        """Write and wait for the brokers; returns when they have it."""
        append_to_input(self._settings, self._topic, [(event.cluster, event.value) for event in events])


def check_written(
    events: Iterable[Planned], before: Sequence[ControlRecord], after: Sequence[ControlRecord]
) -> None:
    """Raise ``Refused`` unless each event is there and nobody else wrote for its cluster since ``before`` was read."""
    newest = max((record.offset for record in before), default=-1)
    for event in events:
        since = [record for record in after if record.offset > newest and record.key == event.cluster]
        if not any(record.value == event.value for record in since):
            raise Refused(
                f"{event.cluster}: the event {event.id} was acknowledged, but is not on the topic: run the command again"
            )
        if any(record.value != event.value for record in since):
            raise Refused(
                f"{event.cluster}: somebody else wrote a control event at the same moment, and the newer one replaces the "
                f"other completely: see the result with `trimtab policy show --cluster {event.cluster}`, then run the command "
                "again if something is missing"
            )


def check_taken(events: Iterable[Planned], stands: Mapping[str, Standing]) -> None:
    """Raise ``Refused`` if the controller refuses an event that was written; ``stands`` is read from the topic after that."""
    for event in events:
        stand = stands.get(event.cluster, Standing())
        if stand.refused is not None and (stand.event is None or stand.event.id != event.id):
            raise Refused(
                f"{event.cluster}: the event is written, and executors obey a pause in it, but the controller refuses it: "
                f"{stand.refused}. If its time is ahead, set the clock of this computer, then run the command again"
            )


class KnownCluster(msgspec.Struct, frozen=True):
    """What the newest summary of a cluster says about it."""

    system: System
    mode: Mode | None = None
    brokers_reporting: list[str] = []
    brokers_reporting_count: int = 0

    def has_not(self, broker: str) -> bool:
        """Whether a broker is known not to have reported; only the first hundred are named."""
        return (
            len(self.brokers_reporting) == self.brokers_reporting_count
            and broker not in self.brokers_reporting
        )


def known_clusters_of(settings: Settings, *, since_ms: int) -> dict[str, KnownCluster | None]:
    """Clusters with a round summary since ``since_ms``, with what the newest one says; None if that cannot be read."""
    with output_reader(settings, settings.topics.audit, begin=since_ms) as reader:
        return {
            record.key.decode(): _decode_summary(record.value)
            for record in reader.read_to_end()
            if record.key
        }


_summaries = msgspec.json.Decoder(ReadEnvelope[KnownCluster])


def _decode_summary(value: bytes | None) -> KnownCluster | None:
    try:
        return _summaries.decode(value or b"").data
    except msgspec.MsgspecError:  # such a record shows that the cluster exists, and no more
        return None
