"""What an executor remembers and obeys: the throttle that it set on a cluster, and the control event in force.

The memory is written before anything is set on a cluster, so that exactly that is removed again: after a crash there may be
less on the cluster than remembered, never more.

The controller refuses a control event whose time is ahead of its log, or whose settings do not fit. The executor obeys it all
the same, because somebody asked for a pause. But a time that is ahead counts as the time of the record: otherwise such an
event would hide every later one until its time has come.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

import msgspec

from policies.throttle.lists import ThrottledLists, union
from state.events import System
from state.overlay import ControlData, epoch_ms
from state.settings import RoundSettings
from state.systems import rounds_of
from streaming.contract.messages import ControlMessage
from streaming.process.closeable import Closeable
from streaming.process.exits import Refused
from streaming.settings import ClusterSettingsSource, Settings
from streaming.systems import input_side, output_side
from streaming.transport.errors import PublishError
from streaming.transport.side import Reader, Side, Write

_READ_TIMEOUT_S = 10.0
"""With a longer wait for the control topic, a process could not end soon after it is told to."""
_CONTROL = msgspec.json.Decoder(ControlMessage)


class SetRate(msgspec.Struct, frozen=True):
    """A rate that the executor set on a broker."""

    ours: int
    before: int | None
    """What was there before; None: nothing."""
    earlier: int | None = None
    """The rate that the executor set before ``ours``, while it is not known which of the two is in force."""


class Remembered(msgspec.Struct, frozen=True):
    """Everything that is remembered of one cluster; plain values, stored as JSON."""

    added: ThrottledLists = ThrottledLists()
    """Entries of the throttled replica lists that were not there before."""
    rates: dict[str, SetRate] = {}
    """Rates by role and broker, as in ``leader:101``."""
    is_planned: bool = False
    """Whether it is for a move that had not begun when that was last checked; then it is not a leftover."""

    @property
    def is_empty(self) -> bool:
        """Whether the executor has set nothing on the cluster."""
        return self.added.is_empty and not self.rates

    def with_(self, ours: Self) -> Self:
        """What is on the cluster after an executor that did not know of this memory has set ``ours``."""
        rates = {
            name: msgspec.structs.replace(now, earlier=ours.rates[name].ours) if name in ours.rates else now
            for name, now in self.rates.items()
        }
        return msgspec.structs.replace(
            self, added=union(self.added, ours.added), rates={**ours.rates, **rates}
        )

    @classmethod
    def parse(cls, value: bytes | None) -> Self:
        """The memory in the value of a record; without a value nothing is remembered."""
        return cls() if value is None else msgspec.json.decode(value, type=cls)


@dataclass(frozen=True, slots=True)
class HeldMemory:
    """The memory of a cluster while this executor holds it; ``remembered`` is the memory as it was when it was taken."""

    remembered: Remembered
    _write: Write

    def write(self, remembered: Remembered) -> None:
        """Replace it. Raises ``Taken`` where another executor took it, and ``PublishError``."""
        self._write(None if remembered.is_empty else msgspec.json.encode(remembered))


@dataclass(frozen=True, slots=True)
class Memory:
    """The newest value of one cluster on a compacted topic. Methods raise ``PublishError``. Not for several threads.

    An executor that wants to change the memory takes it: from then on the executor that had it before, perhaps a frozen one, cannot
    write any more, and what is read afterwards is the newest. So no executor overwrites what it has not read.
    """

    side: Side
    topic: str
    cluster: str

    def read(self) -> Remembered:
        """Read the topic to its end, without taking the memory."""
        value: bytes | None = None
        with (
            _explain_refused(f"the topic {self.side.full_name(self.topic)}"),
            self.side.reader(self.topic, compacted=True) as reader,
        ):
            for record in reader.read_to_end():
                if record.key == self.cluster.encode():
                    value = record.value
        return Remembered.parse(value)

    @contextmanager
    def hold(self) -> Iterator[HeldMemory]:
        """Take the memory from the executor that holds it, read it, and change it until the end of the block."""
        with self.side.exclusive_writer(
            self.topic, self.cluster, owner=f"trimtab-execute-{self.cluster}"
        ) as write:
            yield HeldMemory(self.read(), write)


def memory_of(settings: Settings, *, cluster: str) -> Memory:
    """The memory of a cluster's executors, not yet connected to anything."""
    return Memory(output_side(settings), settings.topics.executor_kafka, cluster)


class ControlView(Closeable):
    """The newest control event of one cluster: greatest (time, id), wherever in the log it is; ``rounds`` say what is ahead.

    It connects when it is first asked. After any failure the next call reads the topic from its beginning.
    """

    def __init__(self, side: Side, topic: str, *, cluster: str, rounds: RoundSettings) -> None:
        self._side = side
        self._topic = topic
        self._cluster = cluster
        self._rounds = rounds
        self._reader: Reader | None = None
        self._newest: tuple[int, str] | None = None
        self._data: ControlData | None = None

    def newest(self) -> ControlData | None:
        """The event in force now, after reading to the end of the topic. Raises ``PublishError``: unknown is not unpaused."""
        try:
            with _explain_refused(f"the control topic {self._side.full_name(self._topic)}"):
                if self._reader is None:
                    self._reader = self._side.reader(self._topic, compacted=True, silence_s=_READ_TIMEOUT_S)
                for record in self._reader.read_to_end():
                    if record.key == self._cluster.encode():
                        self._take(record.value, appended_ms=record.timestamp)
        except PublishError:
            self.close()
            raise
        return self._data

    def close(self) -> None:
        """Close the connection."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def _take(self, value: bytes | None, *, appended_ms: int) -> None:
        """Take a record. One that is no control event, such as a tombstone, changes nothing; the controller refuses it."""
        try:
            event = _CONTROL.decode(value or b"")
        except msgspec.MsgspecError:
            return
        if event.cluster != self._cluster:
            return
        time_ms = epoch_ms(event.time)
        age_key = appended_ms if self._rounds.is_ahead(time_ms, appended_ms) else time_ms, event.id
        if self._newest is None or age_key > self._newest:
            self._newest, self._data = age_key, event.data


def control_of(settings: Settings, *, cluster: str, system: System) -> ControlView:
    """The control view of a cluster of a system, not yet connected to anything."""
    rounds = rounds_of(system, ClusterSettingsSource(settings).base(cluster))
    return ControlView(input_side(settings), settings.topics.control, cluster=cluster, rounds=rounds)


@contextmanager
def _explain_refused(what: str) -> Iterator[None]:
    """Turn a refusal into an error that an executor waits out; its cause says whether it may pass."""
    try:
        yield
    except Refused as error:
        raise PublishError(f"{what} cannot be read: {error.message}") from error.__cause__
