"""The newest control event of a cluster, which the executor reads before every action.

The controller refuses an event whose time is ahead of its log, or whose settings do not fit. The executor obeys them all the same,
because somebody asked for a pause. But a time that is ahead counts as the time of the record: otherwise such an event would
hide every later one until its time has come.
"""

from abc import abstractmethod

import msgspec

from state.settings import RoundSettings
from streaming.contract.decode import to_ms
from streaming.contract.messages import ControlData, ControlMessage
from streaming.process.closing import Closing

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
