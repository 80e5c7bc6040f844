"""What an executor needs of the brokers: the actions, the memory of its throttle, and the control event in force.

Actions come each at least once and in order, and with the epochs that tell which controllers' actions are out of date.

The memory is written before anything is set on a cluster, so that exactly that is removed again: after a crash there may be
less on the cluster than remembered, never more.

The controller refuses a control event whose time is ahead of its log, or whose settings do not fit. The executor obeys it all
the same, because somebody asked for a pause. But a time that is ahead counts as the time of the record: otherwise such an
event would hide every later one until its time has come.
"""

from abc import abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol, Self

import msgspec

from policies.throttle.lists import ThrottledLists, union
from state.settings import RoundSettings
from streaming.contract.decode import to_ms
from streaming.contract.messages import ControlData, ControlMessage
from streaming.process.closing import Closing

LOOKBACK_S = 3600.0
"""How far back a first start reads actions: actions that have not expired are younger, and expired ones get their result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionRecord:
    """A record of the actions topic."""

    value: bytes
    epoch_header: bytes | None
    partition: int = 0


@dataclass(slots=True)
class Epochs:
    """The highest epoch read so far of each source in each partition: it applies to the records that follow there.

    Actions that an older controller published before it stay valid, even if they are carried out later.
    """

    _highest: dict[int, dict[str, int]] = field(default_factory=dict)

    def note(self, partition: int, source: str, epoch: int) -> int:
        """Take note of the epoch of the partition's next record; returns the highest epoch of the source so far, this one included."""
        epochs = self._highest.setdefault(partition, {})
        epochs[source] = max(epoch, epochs.get(source, epoch))
        return epochs[source]

    def epochs_of(self, partition: int) -> Mapping[str, int]:
        """The highest epoch so far of each source in a partition."""
        return self._highest.get(partition, {})

    def forget(self) -> None:
        """Forget all epochs, because the partitions are read again from an earlier place."""
        self._highest.clear()

    def begin(self, partition: int, epochs: Mapping[str, int]) -> None:
        """Reading of a partition begins (again) at a place; ``epochs`` are those that were read before it."""
        self._highest[partition] = dict(epochs)


class Actions(Protocol):
    """Actions, each at least once and in order. Methods raise ``PublishError``; call ``drop`` after it."""

    def poll(self, *, timeout_s: float) -> list[ActionRecord]:
        """Records in order, partition by partition."""

    def keep_polled(self) -> None:
        """Keep the polled records while they are worked on; call it every few seconds. Fails once another executor has them."""

    def commit(self) -> None:
        """Note that all records polled so far are dealt with."""

    def drop(self) -> None:
        """Forget the records that were polled and not committed: they come again, here or at another executor. Raises nothing."""

    def is_at_end(self) -> bool:
        """Whether no record that exists at this moment is left to poll, once the polled ones are committed."""


class Rate(msgspec.Struct, frozen=True):
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
    rates: dict[str, Rate] = {}
    """Rates by role and broker, as in ``leader:101``."""
    is_planned: bool = False
    """Whether it is for a move that had not begun when that was last checked; then it is not a leftover."""

    @property
    def is_empty(self) -> bool:
        """Whether the executor has set nothing on the cluster."""
        return not (self.added.leader or self.added.follower or self.rates)

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

    def value(self) -> bytes | None:
        """The value for a record; None where nothing is remembered."""
        return None if self.is_empty else msgspec.json.encode(self)


class HeldMemory(Protocol):
    """The memory of a cluster while this executor holds it."""

    @property
    def remembered(self) -> "Remembered":
        """The memory as it was when it was taken."""

    def write(self, remembered: "Remembered") -> None:
        """Replace it. Raises ``Taken`` where another executor took it, and ``PublishError``."""


class Memory(Protocol):
    """What is remembered of one cluster. Methods raise ``PublishError``."""

    def read(self) -> Remembered:
        """The newest value, without taking the memory."""

    def hold(self) -> AbstractContextManager[HeldMemory]:
        """Take the memory from the executor that holds it, read it, and change it."""


READ_TIMEOUT_S = 10.0
"""With a longer wait for the control topic, a process could not end soon after it is told to."""


class ControlView(Closing):
    """The newest control event of one cluster: greatest (time, id), wherever in the log it is; ``rounds`` say what is ahead."""

    def __init__(self, cluster: str, rounds: RoundSettings) -> None:
        self._cluster = cluster
        self._rounds = rounds
        self._newest: tuple[int, str] | None = None
        self._data: ControlData | None = None

    @abstractmethod
    def newest(self) -> ControlData | None:
        """The event in force now, after reading to the end of the topic. Raises ``PublishError``: unknown is not unpaused."""

    def _take(self, value: bytes | None, *, appended_ms: int) -> None:
        """Take a record. One that is no control event, such as a tombstone, changes nothing; the controller refuses it."""
        try:
            event = _control.decode(value or b"")
        except msgspec.MsgspecError:
            return
        if event.cluster != self._cluster:
            return
        time_ms = to_ms(event.time)
        age_key = appended_ms if self._rounds.is_ahead(time_ms, appended_ms) else time_ms, event.id
        if self._newest is None or age_key > self._newest:
            self._newest, self._data = age_key, event.data


_control = msgspec.json.Decoder(ControlMessage)
