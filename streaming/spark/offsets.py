"""How far a query has read, from the files in which Spark notes it. Pure.

A file is a line ``v1``, a line about the batch, and a line of JSON for each source. Kafka's offsets name the next record,
``{"topic": {"0": 12}}``; ours on Pulsar name the last record that was read, ``{"persistent://t/n/x-partition-0": "ledger:entry"}``.
"""

import msgspec

from streaming.transport.side import Place, Progress

_HEAD_LINES = 2
_Source = dict[str, dict[str, int] | str]


class _Batch(msgspec.Struct, frozen=True):
    batchTimestampMs: int = 0  # noqa: N815  Spark's name


def decode_progress(text: bytes) -> Progress:
    """What an offsets file says. Raises ValueError if the text is not one."""
    lines = text.decode().splitlines()
    if len(lines) < _HEAD_LINES:
        raise ValueError(f"{len(text)} bytes without a line about the batch")
    try:
        planned_ms = msgspec.json.decode(lines[1], type=_Batch).batchTimestampMs
        sources = [msgspec.json.decode(line, type=_Source) for line in lines[2:] if line.startswith("{")]
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from error
    places = [place for source in sources for name, value in source.items() for place in _places(name, value)]
    return Progress(places, planned_ms)


def _places(name: str, value: dict[str, int] | str) -> list[Place]:
    if not isinstance(value, str):
        return [Place(name, int(number), name, str(offset)) for number, offset in value.items()]
    topic, mark, number = name.rpartition("-partition-")
    is_numbered = bool(mark) and number.isdigit()
    return [Place(topic, int(number), name, value) if is_numbered else Place(name, 0, name, value)]
