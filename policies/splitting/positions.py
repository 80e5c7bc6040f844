"""Where topics are in the hash range: CRC32 of the full name.

Names are hashed exactly as written, domain and partition suffix included: ``orders`` and
``persistent://shop/orders/new`` are two different positions, and only the second is where Pulsar looks.
Source: Pulsar ``NamespaceBundleFactory.getLongHashCode`` (not Murmur3, which is for message keys).
"""

from collections.abc import Collection
from zlib import crc32

import numpy as np

from policies.columns import Ints

DOMAINS = ("persistent://", "non-persistent://")
"""What a full topic name begins with."""


def position_of(topic: str) -> int:
    """Position of one topic, 0 to 0xffffffff."""
    return crc32(topic.encode())


def positions_of(topics: Collection[str]) -> Ints:
    """Position of each, (n,); a million topics take well under a second."""
    return np.fromiter(map(crc32, map(str.encode, topics)), dtype=np.int64, count=len(topics))


def partitions_of(topic: str, count: int) -> tuple[str, ...]:
    """Names of a partitioned topic's partitions, from ``<topic>-partition-0`` on; each has a position of its own.

    Raises ``ValueError`` for a negative count. 0 is Pulsar's count for a topic without partitions: the result is its own name.
    """
    if count < 0:
        raise ValueError(f"{topic} cannot have {count} partitions; expected 0 or more")
    return tuple(f"{topic}-partition-{number}" for number in range(count)) or (topic,)


def is_full_name(topic: str) -> bool:
    """Whether the name has a domain; a name that Pulsar hashes always has one."""
    return topic.startswith(DOMAINS)
