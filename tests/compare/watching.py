"""What happens in the cluster while it runs: usage of each card, the owner of each bundle, and from both what a run is judged by."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from policies.splitting.ranges import Bundle, position_of
from streaming.pulsar.admin import PulsarAdmin
from streaming.pulsar.http import AdminError
from tests.compare.judging import Seen
from tests.compare.scenarios import CARD_BYTES_PER_S, NAMESPACE
from tests.support.network import Network

STEP_S = 5.0
_OWNERS_EVERY = 3
"""Steps from one look at the owners to the next: asking for each bundle takes brokers more than its traffic."""


@dataclass(slots=True, kw_only=True)
class Watch:
    """Looks at the cluster every few seconds, in a thread of its own; a context manager that ends it."""

    network: Network
    admin: PulsarAdmin
    numbers: Mapping[str, int]
    """Of the brokers, by id."""
    process_of: Callable[[int], int | None]
    """The process of a broker, by its number; None while it does not run."""
    messages_per_s: Mapping[str, float]
    """By topic, after what happens."""
    seen: Seen = field(default_factory=Seen)
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(60)

    def _run(self) -> None:
        before = {number: self.network.bytes_of(number) for number in self.numbers.values()}
        before_s = time.monotonic()
        while not self._over.wait(STEP_S):
            now_s, now = time.monotonic(), {}
            usage = {}
            for number in self.numbers.values():
                now[number] = self.network.bytes_of(number)
                used = max(
                    after - earlier for after, earlier in zip(now[number], before[number], strict=True)
                )
                if self.process_of(number) is not None:
                    usage[number] = 100 * used / (now_s - before_s) / CARD_BYTES_PER_S
            before, before_s = now, now_s
            if len(self.seen.times_s) % _OWNERS_EVERY == 0:
                self._look_at_owners()
            else:
                self.seen.bundles_count.append(self.seen.bundles_count[-1])
                self.seen.messages_per_s.append(self.seen.messages_per_s[-1])
            self.seen.usage_points.append(usage)
            self.seen.times_s.append(time.time())

    def _look_at_owners(self) -> None:
        carried = {number: 0.0 for number in self.numbers.values() if self.process_of(number) is not None}
        try:
            bundles = self.admin.bundles(NAMESPACE)
        except AdminError:  # its brokers are being restarted
            bundles = []
        self.seen.bundles_count.append(
            len(bundles) or (self.seen.bundles_count[-1] if self.seen.bundles_count else 0)
        )
        for bundle, topics in topics_of(bundles, list(self.messages_per_s)).items():
            if not topics:
                continue
            owner = self.seen.see_owner(str(bundle), self._owner(topics[0]), self.process_of, time.time())
            if owner in carried:
                carried[owner] += sum(self.messages_per_s[topic] for topic in topics)
        self.seen.messages_per_s.append(carried)

    def _owner(self, topic: str) -> int | None:
        try:
            address = self.admin.lookup(topic)
        except AdminError:  # it is being unloaded
            return None
        return self.numbers.get(address or "")


def topics_of(bundles: Sequence[Bundle], topics: Sequence[str]) -> dict[Bundle, list[str]]:
    """The topics in each bundle."""
    found: dict[Bundle, list[str]] = {bundle: [] for bundle in bundles}
    for topic in topics:
        position = position_of(topic)
        for bundle in bundles:
            if bundle.range.contains(position):
                found[bundle].append(topic)
    return found
