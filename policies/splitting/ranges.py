"""The hash ranges of bundles: what is a valid one, what lies in it, where a topic is, and in which bundle.

Positions are unsigned 32-bit. A bundle holds its lower bound and not its upper one, except 0xffffffff, which belongs to
the last bundle. Source: Pulsar ``NamespaceBundle``, ``NamespaceBundles`` and ``NamespaceBundleFactory`` of 4.2.4.

A topic is at the CRC32 of its full name (``NamespaceBundleFactory.getLongHashCode``; not Murmur3, which is for message keys). Names
are hashed exactly as written, domain and partition suffix included: ``orders`` and ``persistent://shop/orders/new`` are two
different positions, and only the second is where Pulsar looks. Nothing here knows load.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self
from zlib import crc32

import numpy as np

from policies.columns import Bools, Ints

FULL_UPPER = 0xFFFFFFFF
"""Greatest position there is; the only upper bound that belongs to its range."""
POSITIONS_COUNT = 1 << 32
"""How many positions there are."""

_RANGE = re.compile(r"0x([0-9a-fA-F]{1,8})_0x([0-9a-fA-F]{1,8})")
_NAMESPACE = re.compile(r"[^/\s]+/(?:[^/\s]+/)?[^/\s]+")
_SHOWN_CHARACTERS = 200


class BadRange(ValueError):
    """A range, a bundle or a cut that Pulsar would refuse; the message says why and what was expected."""


@dataclass(frozen=True, slots=True, order=True)
class BundleRange:
    """Positions of one bundle: ``lower`` is in it, ``upper`` is not unless it is 0xffffffff."""

    lower: int
    upper: int

    def __post_init__(self) -> None:
        if not 0 <= self.lower <= FULL_UPPER or not 0 <= self.upper <= FULL_UPPER:
            raise BadRange(f"{self.lower} to {self.upper} is no range: bounds are 0x00000000 to 0xffffffff")
        if self.lower > self.upper:
            raise BadRange(f"{self} is no range: its lower bound is above its upper one")
        if self.lower == self.upper != FULL_UPPER:
            raise BadRange(f"{self} is an empty range: the upper bound is not in it unless it is 0xffffffff")

    @classmethod
    def parse(cls, text: str) -> Self:
        """The range written as ``0x00000000_0x40000000``. Raises ``BadRange``."""
        match = _RANGE.fullmatch(text)
        if match is None:
            raise BadRange(
                f"invalid bundle range {text[:_SHOWN_CHARACTERS]!r}: expected two bounds of at most 8 hexadecimal "
                f"digits, such as 0x00000000_0x40000000"
            )
        return cls(int(match[1], 16), int(match[2], 16))

    @property
    def last(self) -> int:
        """Greatest position in it."""
        return self.upper if self.upper == FULL_UPPER else self.upper - 1

    @property
    def can_split(self) -> bool:
        """Whether a boundary fits strictly inside. Source: Pulsar ``NamespaceBundleFactory.canSplitBundle``."""
        return self.upper - self.lower > 1

    def contains(self, position: int) -> bool:
        """Whether a topic at ``position`` is in the bundle."""
        return self.lower <= position <= self.last

    def contains_each(self, positions: Ints) -> Bools:
        """Whether topics at these positions are in the bundle, (n,)."""
        return (positions >= self.lower) & (positions <= self.last)

    def cut(self, boundaries: Sequence[int]) -> tuple["BundleRange", ...]:
        """The children, ascending; together they are this range. Raises ``BadRange`` as Pulsar's ``splitBundles``."""
        if not self.can_split:
            raise BadRange(f"{self} can't be split further: a range must be larger than 1")
        edges = [self.lower, *boundaries, self.upper]
        for before, after in pairwise(edges):
            if before >= after:
                raise BadRange(
                    f"{self} cannot be cut at {list(boundaries)}: boundaries must ascend, differ and lie strictly inside"
                )
        return tuple(BundleRange(low, high) for low, high in pairwise(edges))

    def __str__(self) -> str:
        return f"0x{self.lower:08x}_0x{self.upper:08x}"


@dataclass(frozen=True, slots=True, order=True)
class Bundle:
    """A bundle by namespace (``tenant/namespace``, in old clusters ``tenant/cluster/namespace``) and range."""

    namespace: str
    range: BundleRange

    @classmethod
    def parse(cls, name: str) -> Self:
        """The bundle of a full name, ``tenant/namespace/0x00000000_0x40000000``. Raises ``BadRange``."""
        namespace, slash, bounds = name.rpartition("/")
        if not slash or _NAMESPACE.fullmatch(namespace) is None:
            raise BadRange(
                f"{name[:_SHOWN_CHARACTERS]!r} is no bundle: expected tenant/namespace/0x00000000_0xffffffff "
                f"or tenant/cluster/namespace/0x00000000_0xffffffff"
            )
        return cls(namespace, BundleRange.parse(bounds))

    def cut(self, boundaries: Iterable[int]) -> tuple["Bundle", ...]:
        """The bundles between the boundaries, ascending. Raises ``BadRange``."""
        return tuple(Bundle(self.namespace, part) for part in self.range.cut(sorted(set(boundaries))))

    def holds_name(self, topic: str) -> bool:
        """Whether a full topic name belongs to the namespace; says nothing about its position."""
        return topic.startswith((f"persistent://{self.namespace}/", f"non-persistent://{self.namespace}/"))

    def __str__(self) -> str:
        return f"{self.namespace}/{self.range}"


@dataclass(frozen=True, slots=True, eq=False)
class NamespaceBundles:
    """All bundles of one namespace, by their n + 1 boundaries: from 0x00000000 to 0xffffffff, ascending."""

    boundaries: Ints

    def __post_init__(self) -> None:
        edges = self.boundaries
        if len(edges) < 2 or edges[0] != 0 or edges[-1] != FULL_UPPER or (np.diff(edges) <= 0).any():  # noqa: PLR2004
            raise BadRange(
                f"{edges.tolist()} are no boundaries of a namespace: they must ascend from 0 to {FULL_UPPER} and differ"
            )

    @classmethod
    def equal(cls, count: int) -> Self:
        """``count`` bundles as Pulsar makes them for a new namespace: at multiples of floor(2^32 / count)."""
        if not 1 <= count <= FULL_UPPER:
            raise BadRange(f"a namespace cannot have {count} bundles; expected 1 to {FULL_UPPER}")
        edges = np.arange(count + 1, dtype=np.int64) * (POSITIONS_COUNT // count)
        edges[-1] = FULL_UPPER
        return cls(edges)

    def __len__(self) -> int:
        return len(self.boundaries) - 1

    def range_of(self, row: int) -> BundleRange:
        """The bundle of one row."""
        return BundleRange(int(self.boundaries[row]), int(self.boundaries[row + 1]))

    def rows_of(self, positions: Ints) -> Ints:
        """Row of the bundle each position is in, (n,). Raises ``BadRange`` for what is no position."""
        if len(positions) and not 0 <= int(positions.min()) <= int(positions.max()) <= FULL_UPPER:
            raise BadRange(
                f"positions are {positions.min()} to {positions.max()}; expected 0 to {FULL_UPPER}"
            )
        rows: Ints = np.searchsorted(self.boundaries, positions, side="right").astype(np.int64) - 1
        return np.minimum(rows, len(self) - 1)


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
