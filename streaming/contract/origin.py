"""Where a record came from."""

import msgspec


class Origin(msgspec.Struct, frozen=True, order=True):
    """Coordinates of a record in a log, or of a line in a file."""

    topic: str
    """Topic, or file name."""
    partition: int
    offset: int
    """Offset, or number of the line, from 1."""
