"""Names of bundles and topics, taken apart as the admin API needs them."""

import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

__all__ = ["BundleName", "topic_hash"]

_BUNDLE = re.compile(
    r"(?P<namespace>[^/\s]+/(?:[^/\s]+/)?[^/\s]+)/0x(?P<low>[0-9a-fA-F]{1,8})_0x(?P<high>[0-9a-fA-F]{1,8})"
)
_HASH_MAX = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class BundleName:
    """``tenant/namespace/0x…_0x…``: the hashes from ``low`` up to, not including, ``high`` (the last bundle includes it)."""

    namespace: str
    low: int
    high: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ValueError naming the text."""
        match = _BUNDLE.fullmatch(text)
        if match is None:
            raise ValueError(f"{text[:200]!r} is no bundle: expected tenant/namespace/0x00000000_0xffffffff")
        return cls(match["namespace"], int(match["low"], 16), int(match["high"], 16))

    @property
    def range(self) -> str:
        """``0x40000000_0x80000000``."""
        return f"0x{self.low:08x}_0x{self.high:08x}"

    def holds(self, hash_: int) -> bool:
        """Whether a topic with this hash is in the bundle."""
        return self.low <= hash_ < self.high or self.high == hash_ == _HASH_MAX

    def cut(self, boundaries: Iterable[int]) -> list["BundleName"]:
        """The bundles between the boundaries, ascending; each boundary lies strictly inside."""
        edges = [self.low, *sorted(set(boundaries)), self.high]
        return [BundleName(self.namespace, low, high) for low, high in pairwise(edges)]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.range}"


def topic_hash(topic: str) -> int:
    """The hash of a topic's full name (partition suffix included): CRC-32, Pulsar's default bundle hash."""
    return zlib.crc32(topic.encode())
