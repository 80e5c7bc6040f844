"""What a cluster's operators last said, as the executor asks before every action."""

from abc import abstractmethod
from datetime import datetime

import msgspec

from streaming.contract.messages import ControlData, ControlMessage
from streaming.process.closing import Closing

__all__ = ["READ_TIMEOUT_S", "ControlView"]

READ_TIMEOUT_S = 10.0
"""A gate that waits longer for the control topic would keep a process from ending when it is told to."""


class ControlView(Closing):
    """The newest control event of one cluster: greatest (time, id), wherever in the log it is."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._newest: tuple[datetime, str] | None = None
        self._data: ControlData | None = None

    @abstractmethod
    def newest(self) -> ControlData | None:
        """What is in force now: read to the end of the topic. Raises ``PublishError``: unknown is not unpaused."""

    def _take(self, value: bytes | None) -> None:
        """What is no control event, a tombstone too, is the controller's to refuse and changes nothing."""
        try:
            event = _control.decode(value or b"")
        except msgspec.MsgspecError:
            return
        if event.cluster == self._cluster and (self._newest is None or (event.time, event.id) > self._newest):
            self._newest, self._data = (event.time, event.id), event.data


_control = msgspec.json.Decoder(ControlMessage)
