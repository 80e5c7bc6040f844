"""The request of ``trimtab throttle plan``: a reassignment with its traffic, or Kafka's own file of target replicas.

Everything that can be wrong about a request is a ``BadRequest`` that names it. Reads no file and no cluster.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from policies.throttle.moves import BadMove, MoveColumns, Reassignment, read_moves
from streaming.contract.messages import SHOWN_CHARACTERS

_NOT_KAFKAS = ("current_replicas", "target_replicas", "leader")
"""What a partition needs unless it is looked up on the cluster."""


class BadRequest(ValueError):
    """The request cannot be answered; the message names what is wrong and what was expected."""


class PartitionRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One partition: in full, or as Kafka's ``kafka-reassign-partitions`` writes it (``replicas``)."""

    topic: str
    partition: int
    replicas: list[int] | None = None
    """Kafka's word for target_replicas."""
    log_dirs: list[str] | None = None
    """Part of Kafka's file, not used; moves between directories of a broker have a throttle of their own and are not planned."""
    target_replicas: list[int] | None = None
    current_replicas: list[int] | None = None
    in_progress_adding_replicas: list[int] | None = None
    leader: int | None = None
    write_bytes_per_s: int | float | None = None
    log_size_bytes: int | float | None = None

    @property
    def name(self) -> str:
        """``topic-partition``."""
        return f"{self.topic[:SHOWN_CHARACTERS]}-{self.partition}"

    @property
    def target(self) -> list[int]:
        """Replicas in the end. Raises ``BadRequest`` where there are none or two."""
        if (self.replicas is None) == (self.target_replicas is None):
            what = "neither" if self.replicas is None else "both"
            raise BadRequest(f"{self.name}: has {what} of target_replicas and replicas; give one of them")
        return self.target_replicas if self.replicas is None else self.replicas  # type: ignore[return-value]


class ThrottleRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How fast may these partitions move?"""

    partitions: list[PartitionRow]
    version: Annotated[int, Meta(ge=1, le=1)] = 1
    """Version of Kafka's file."""


_decoder = msgspec.json.Decoder(ThrottleRequest)


def read_request(text: bytes) -> ThrottleRequest:
    """The request in ``text``. Raises ``BadRequest``."""
    try:
        return _decoder.decode(text)
    except msgspec.ValidationError as error:
        keys = ", ".join(PartitionRow.__struct_fields__)
        hint = f"; a partition has {keys}" if "unknown field" in str(error) else ""
        raise BadRequest(f"bad request: {error}{hint}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"not JSON: {str(error)[:SHOWN_CHARACTERS]}") from error


def reassignment_of(request: ThrottleRequest) -> Reassignment:
    """The request checked and sorted, all of it from the file. Raises ``BadRequest``."""
    rows = request.partitions
    for row in rows:
        lacking = [
            key for key in _NOT_KAFKAS if getattr(row, key) is None and not (key[0] == "t" and row.replicas)
        ]
        if lacking:
            raise BadRequest(
                f"{row.name}: {' and '.join(lacking)} missing; add what is missing, "
                f"or let it be read from the cluster with --bootstrap or --cluster"
            )
    columns = MoveColumns(
        topics=[row.topic for row in rows],
        partitions=[row.partition for row in rows],
        current=[row.current_replicas or () for row in rows],
        adding=[row.in_progress_adding_replicas or () for row in rows],
        target=[row.target for row in rows],
        leaders=[-1 if row.leader is None else row.leader for row in rows],
        write_bytes_per_s=whole_numbers(rows, "write_bytes_per_s"),
        log_size_bytes=whole_numbers(rows, "log_size_bytes"),
    )
    return check(columns)


def check(columns: MoveColumns) -> Reassignment:
    """``read_moves`` for a plan, in which every partition needs a leader. Raises ``BadRequest``."""
    try:
        found = read_moves(columns)
    except BadMove as error:
        raise BadRequest(str(error)) from error
    moves = found.moves
    offline = (
        [moves.name(row) for row in range(len(moves)) if not moves.is_led()[row]]
        if not moves.is_led().all()
        else []
    )
    if offline:
        raise BadRequest(
            f"{show(offline)}: no leader (-1), so nothing can be copied; bring one of the current replicas back first"
        )
    return found


def whole_numbers(rows: Sequence[PartitionRow], key: str) -> list[int | None]:
    """Rates or sizes of the rows; a fraction of a byte is rounded up. Raises ``BadRequest`` for what is no number."""
    return [_whole_number_of(row, key) for row in rows]


def _whole_number_of(row: PartitionRow, key: str) -> int | None:
    value: int | float | None = getattr(row, key)
    if value is None or isinstance(value, int):
        return value
    if not math.isfinite(value):
        raise BadRequest(
            f"{row.name}: {key} is {value}; expected a number of bytes from 0, or null for unknown"
        )
    return math.ceil(value) if value >= 0 else math.floor(value)


def show(names: Iterable[str], most: int = 5) -> str:
    """The first few names, and how many more there are."""
    listed = list(names)
    text = ", ".join(listed[:most])
    return text if len(listed) <= most else f"{text} and {len(listed) - most} more"
