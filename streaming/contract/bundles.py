"""Which bundles a load report is about: their checked names, ascending, and where the numbers of each are.

A broker reports the same names in the same order round after round, so what follows from the names alone is worked out
once and kept with the broker; a report with other names is worked out anew. What is kept makes the answer faster, but
never different. Kept lists and columns are shared between reports and must not be changed.
"""

import re
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import filterfalse

import numpy as np

from policies.columns import Bools, Ints
from state.events import is_system_bundle
from state.overlay import MAX_NAME_CHARACTERS
from streaming.contract.messages import SHOWN_CHARACTERS
from streaming.contract.refusal import Refusal

BUNDLE = re.compile(r"[^/\s]+/(?:[^/\s]+/)?[^/\s]+/0x[0-9a-fA-F]{1,8}_0x[0-9a-fA-F]{1,8}")
MAX_NAMES = 1_000_000
"""Most names that are kept, and most names in the listings that are kept: a name takes about 100 bytes, a name in a
listing about 30, so together at most about 130 MB. Above the limit they are forgotten and learned again."""


class BadBundleName(Refusal):
    """A name that is not the name of a bundle; the message quotes it."""

    def __init__(self, name: str) -> None:
        super().__init__(
            "bad-bundle-name",
            f"{name[:SHOWN_CHARACTERS]!r} is no bundle: expected tenant/namespace/0x00000000_0xffffffff "
            f"or tenant/cluster/namespace/0x00000000_0xffffffff",
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Listing:
    """What follows from the names in one report."""

    with_stats: list[str]
    """Keys of ``lastStats``, in the report's order."""
    listed: list[str] | None
    """``bundles`` of the report, in its order; None where it is absent."""
    listed_count: int
    """Different bundles listed, system bundles included."""
    bundles: list[str]
    """The listed bundles without system bundles, ascending, each once."""
    system_bundles: list[str]
    """The system bundles among them, likewise."""
    stats_rows: Ints
    """For each of ``bundles`` its row in ``with_stats``, -1 where it has none."""
    has_stats: Bools
    """For each of ``bundles`` whether it has such a row."""

    @property
    def size(self) -> int:
        """How many names it holds."""
        return len(self.with_stats) + len(self.listed or ())


class KnownBundles:
    """Names found valid and the last listing of each broker; not thread-safe."""

    def __init__(self, max_names: int = MAX_NAMES) -> None:
        self._max_names = max_names
        self._names: dict[str, str] = {}
        self._system: set[str] = set()
        self._listings: dict[tuple[str, str], Listing] = {}
        self._listed_count = 0

    def listing(self, broker: tuple[str, str], stats: Iterable[str], listed: list[str] | None) -> Listing:
        """The listing of a report of ``broker`` (its cluster and id).

        ``stats`` are the keys of ``lastStats``; ``listed`` is ``bundles``, None for the same as ``stats``. Raises
        ``BadBundleName``.
        """
        with_stats = list(stats)
        known = self._listings.get(broker)
        if known is not None and known.with_stats == with_stats and known.listed == listed:
            return known
        self.check({*with_stats, *(listed or ())})
        new = self._make_listing(with_stats, listed)
        self._keep(broker, new)
        return new

    def check(self, names: AbstractSet[str]) -> None:
        """Raise ``BadBundleName`` for the first name, ascending, that is not the name of a bundle; remember the valid ones."""
        new = set(filterfalse(self._names.__contains__, names))
        for name in sorted(new):
            if len(name) > MAX_NAME_CHARACTERS or BUNDLE.fullmatch(name) is None:
                raise BadBundleName(name)
        if len(self._names) + len(new) > self._max_names:
            self._names, self._system, new = {}, set(), set(names)
        self._names.update(zip(new, new, strict=True))
        self._system.update(filter(is_system_bundle, new))

    def _make_listing(self, with_stats: list[str], listed: list[str] | None) -> Listing:
        """The listing of names that ``check`` has just let through."""
        different = set(with_stats if listed is None else listed)
        bundles = self._intern(sorted(different - self._system))
        row_of = dict(zip(with_stats, range(len(with_stats)), strict=True))
        rows = np.array([row_of.get(name, -1) for name in bundles], dtype=np.int64)
        return Listing(
            with_stats=self._intern(with_stats),
            listed=None if listed is None else self._intern(listed),
            listed_count=len(different),
            bundles=bundles,
            system_bundles=self._intern(sorted(different & self._system)),
            stats_rows=rows,
            has_stats=rows >= 0,
        )

    def _intern(self, names: list[str]) -> list[str]:
        """The same names as the string objects that are kept, so that each is in memory once and is compared quickly."""
        return [self._names[name] for name in names]

    def _keep(self, broker: tuple[str, str], listing: Listing) -> None:
        before = self._listings.pop(broker, None)
        if before is not None:
            self._listed_count -= before.size
        if self._listed_count + listing.size > self._max_names:
            self._listings, self._listed_count = {}, 0
        self._listings[broker] = listing
        self._listed_count += listing.size
