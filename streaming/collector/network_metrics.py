"""Each broker's network traffic, from the counters on the broker's own metrics page (Prometheus' text format).

A rate is the growth of the counters over the last half minute. A page that does not answer, lacks a counter or shows one
that shrank (its broker was restarted) leaves that broker's traffic unknown, never 0.

Invariants: no caller waits for a page: pages are read in threads, and callers get the last reading; a page takes
``timeout_s`` at most, however slowly it comes; of a large page only the lines of wanted counters are kept.
"""

import logging
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import httpx
from prometheus_client.parser import text_string_to_metric_families

from streaming.contract.kafka import Network
from streaming.process.deadline import Deadline
from streaming.process.exits import words_of
from streaming.settings import KafkaTarget

_LOG = logging.getLogger(__name__)
_WINDOW_S = 30.0
"""Three rounds: steadier than one, and shorter than the pause between two changes of a rate (``min_change_interval_s``), so
that it only holds traffic under the new rate when the next one is decided."""
_FRESH_INTERVALS = 1.5
"""Age in sweep intervals above which a reading is out of date: one interval, and half of one for a slow page."""
_APART_S_MIN = 1.0
_PAGE_BYTES_MAX = 64 * 1024 * 1024
"""Half a million samples; a larger page is not a broker's."""
_THREADS_COUNT = 16
_TOPIC = "topic"
"""Label of the counters of one topic; the counter without it is their sum already."""


@dataclass(frozen=True, slots=True)
class _Counter:
    """A counter by its name and the labels it must have."""

    name: str
    labels: Mapping[str, str]

    @classmethod
    def parse(cls, text: str) -> "_Counter":
        (family,) = text_string_to_metric_families(f"{text} 0\n")
        (sample,) = family.samples
        return cls(sample.name, sample.labels)

    def fits(self, name: str, labels: Mapping[str, str]) -> bool:
        if name != self.name or not self.labels.items() <= labels.items():
            return False
        return _TOPIC in self.labels or not labels.get(_TOPIC)


_Values = tuple[float | None, ...]
"""The value of each counter, in order; None: not on the page."""


@dataclass(frozen=True, slots=True)
class _Reading:
    at_s: float
    received: _Values
    sent: _Values


@dataclass(slots=True)
class _Page:
    """One broker's page: what was read, the oldest first, and the read that runs or was last."""

    readings: list[_Reading] = field(default_factory=list)
    asked: Future[None] | None = None
    problem: str = ""


class NetworkMeter:
    """Reads the pages of a cluster's brokers. Thread-safe; ``clock_s`` is Unix time, ``interval_s`` the time between sweeps.

    ``failed`` is called for each page that could not be read.
    """

    def __init__(
        self,
        target: KafkaTarget,
        *,
        interval_s: float,
        clock_s: Callable[[], float],
        failed: Callable[[], None],
    ) -> None:
        self._url = target.metrics_url or ""
        self._timeout_s = target.timeout_s
        self._received = [_Counter.parse(metric) for metric in target.received_metrics]
        self._sent = [_Counter.parse(metric) for metric in target.sent_metrics]
        self._names = tuple(counter.name.encode() for counter in (*self._received, *self._sent))
        self._window_s = max(_WINDOW_S, 2 * interval_s)
        self._fresh_s = _FRESH_INTERVALS * interval_s
        self._clock_s = clock_s
        self._failed = failed
        self._pages: dict[int, _Page] = {}
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(_THREADS_COUNT, thread_name_prefix="metrics")
        self._client = httpx.Client(trust_env=False, follow_redirects=False, timeout=target.timeout_s)

    def begin(self, hosts: Mapping[int, str]) -> None:
        """Begin to read the pages of these brokers, except those still being read; returns at once. Other brokers are forgotten."""
        with self._lock:
            self._pages = {broker: self._pages.get(broker, _Page()) for broker in hosts}
            for broker, page in self._pages.items():
                if page.asked is None or page.asked.done():
                    page.asked = self._pool.submit(self._read, broker, hosts[broker], page)

    def traffic(self, broker: int) -> Network:
        """What the broker receives and sends, replication included, as far as it is known now."""
        with self._lock:
            page = self._pages.get(broker)
            readings = [] if page is None else list(page.readings)
        if not readings or self._clock_s() - readings[-1].at_s > self._fresh_s:
            return Network()
        return Network(
            in_bytes_per_s=_rate([(reading.at_s, reading.received) for reading in readings]),
            out_bytes_per_s=_rate([(reading.at_s, reading.sent) for reading in readings]),
        )

    def close(self) -> None:
        """Stop reading; does not wait for pages that are being read."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._client.close()

    def _read(self, broker: int, host: str, page: _Page) -> None:
        url = self._url.format(broker=broker, host=f"[{host}]" if ":" in host else host)
        try:
            text = b"\n".join(self._wanted_lines(url)).decode()
            samples = [
                sample for family in text_string_to_metric_families(text + "\n") for sample in family.samples
            ]
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
            why, *_ = words_of(error).splitlines()
            self._note_problem(broker, page, f"{url} cannot be read: {why}")
            self._failed()
            return
        values = [(sample.name, sample.labels, sample.value) for sample in samples]
        reading = _Reading(self._clock_s(), _values(self._received, values), _values(self._sent, values))
        with self._lock:
            oldest_s = reading.at_s - self._window_s
            page.readings = [*(earlier for earlier in page.readings if earlier.at_s >= oldest_s), reading]
        self._note_problem(broker, page, self._describe_missing(url, reading))

    def _wanted_lines(self, url: str) -> Iterator[bytes]:
        deadline = Deadline(self._timeout_s)
        size, rest = 0, b""
        with self._client.stream("GET", url, headers={"Accept": "text/plain;version=0.0.4"}) as response:
            response.raise_for_status()
            for chunk in response.iter_bytes():
                size += len(chunk)
                if size > _PAGE_BYTES_MAX:
                    raise ValueError(f"more than {_PAGE_BYTES_MAX} bytes")
                if deadline.is_over:
                    raise TimeoutError(f"not complete within {self._timeout_s:g} s")
                *lines, rest = (rest + chunk).split(b"\n")
                yield from (line for line in lines if line.startswith(self._names))
        if rest.startswith(self._names):
            yield rest

    def _describe_missing(self, url: str, reading: _Reading) -> str:
        """Counters that are not on a page, in a sentence; empty when all are there."""
        both = zip((*self._received, *self._sent), (*reading.received, *reading.sent), strict=True)
        names = [counter.name for counter, value in both if value is None]
        return f"{url} shows no {', '.join(names)}" if names else ""

    def _note_problem(self, broker: int, page: _Page, problem: str) -> None:
        """Note the problem, and log it once, when it begins."""
        if problem and not page.problem:
            _LOG.warning("traffic of broker %d is unknown: %s", broker, problem)
        page.problem = problem


def _values(counters: Sequence[_Counter], samples: Sequence[tuple[str, Mapping[str, str], float]]) -> _Values:
    return tuple(
        _sum([value for name, labels, value in samples if counter.fits(name, labels)]) for counter in counters
    )


def _sum(values: Sequence[float]) -> float | None:
    return sum(values) if values and all(map(math.isfinite, values)) else None


def _rate(readings: Sequence[tuple[float, _Values]]) -> int | None:
    """Growth per second since the oldest reading after which no counter shrank or was missing; rounded up.

    None if that reading is less than ``_APART_S_MIN`` before the last one.
    """
    at_s, last = readings[-1]
    since_s, first = at_s, last
    for before_s, before in reversed(readings[:-1]):
        if before_s >= since_s or not _has_grown(before, first):
            break
        since_s, first = before_s, before
    if at_s - since_s < _APART_S_MIN:
        return None
    growth = sum(
        new - old for old, new in zip(first, last, strict=True) if old is not None and new is not None
    )
    return math.ceil(growth / (at_s - since_s))


def _has_grown(before: _Values, after: _Values) -> bool:
    return all(
        old is not None and new is not None and new >= old for old, new in zip(before, after, strict=True)
    )
