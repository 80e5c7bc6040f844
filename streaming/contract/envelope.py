"""What stands around the data of every event that the controller publishes, as far as a reader of its topics needs it."""

from typing import Generic, TypeVar

import msgspec

__all__ = ["EPOCH_HEADER", "LARGEST_RECORD_BYTES", "ReadEnvelope", "read_envelope"]

EPOCH_HEADER = "trimtab-epoch"
"""Record header that rises by one at every start of the controller of a source."""

LARGEST_RECORD_BYTES = 8 * 1024 * 1024
"""What a topic of actions has room for, and a producer sends: the throttled replica lists of 100,000 moving partitions
are some 5 MB."""

DataT = TypeVar("DataT")


class ReadEnvelope(msgspec.Struct, Generic[DataT], frozen=True, kw_only=True):
    """An event of any type, of this version or another; its data is read as far as ``DataT`` asks."""

    id: str
    source: str
    type: str
    cluster: str
    subject: str = ""
    time: str = ""
    data: DataT


read_envelope = msgspec.json.Decoder(ReadEnvelope[msgspec.Raw]).decode
"""Raises ``msgspec.MsgspecError`` for what is no event."""
