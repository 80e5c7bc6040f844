"""The envelope of every event on our topics: the fields that a reader needs."""

from typing import Generic, TypeVar

import msgspec

EPOCH_HEADER = "trimtab-epoch"
"""Record header with the epoch, which rises at every start of the controller of a source."""

LARGEST_RECORD_BYTES = 8 * 1024 * 1024
"""Largest record that a topic of actions accepts and a producer sends: the throttled replica lists of 100,000 moving
partitions are about 5 MB."""

DataT = TypeVar("DataT")


class ReadEnvelope(msgspec.Struct, Generic[DataT], frozen=True, kw_only=True):
    """An event of any type, of this version or another; of its data, only what ``DataT`` declares is read."""

    id: str
    source: str
    type: str
    cluster: str
    subject: str = ""
    time: str = ""
    data: DataT


read_envelope = msgspec.json.Decoder(ReadEnvelope[msgspec.Raw]).decode
"""Reads an event and leaves its data as raw JSON. Raises ``msgspec.MsgspecError`` for anything that is not an event."""
