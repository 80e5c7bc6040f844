"""The clients, as a program of their own: a producer and a consumer for each topic, and what they felt.

``python -m tests.compare.clients PLAN.json``: the plan is read anew when it changes, and says how much goes over each topic, and from
when on what is felt counts. On SIGTERM sending stops, consumers take what is left, and ``felt.json`` is written beside the plan.
"""

import itertools
import json
import logging
import math
import random
import re
import struct
import sys
import threading
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pulsar

from streaming.process.stop_signals import stopped_by_signals
from tests.compare.scenarios import MESSAGE_BYTES

FELT = "felt.json"
_HEAD = struct.Struct(">Qd")
"""Number and time of sending."""
_BEAT_S = 0.05
_NOISE_LASTS_S = 40.0
_NOISE_STEP_S = 1.0
_REMAINING_S = 15.0
_SLOW_S = 1.0


class Felt:
    """What the clients of all topics felt; callbacks come from the client's threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.latencies_s: list[float] = []
        self.failed: Counter[str] = Counter()
        self.sent_count = self.acknowledged_count = self.received_count = 0
        self.redelivered_count = self.repeated_count = 0
        self.longest_gap_s = 0.0
        self.connects_count = 0
        self._counts_from_s = math.inf
        self._received: dict[str, dict[int, str]] = {}
        """By topic, the id of each number."""
        self._acknowledged: dict[str, int] = {}
        self._received_s: dict[str, float] = {}

    def count_from(self, time_s: float) -> None:
        """From when on latencies, gaps and connects count."""
        self._counts_from_s = time_s

    def acknowledge(self, topic: str, sent_s: float, result: Any, _message_id: Any) -> None:
        """A producer's callback."""
        now_s = time.time()
        with self._lock:
            if result != pulsar.Result.Ok:
                self.failed[str(result)] += 1
                return
            self.acknowledged_count += 1
            self._acknowledged[topic] = self._acknowledged.get(topic, 0) + 1
            if sent_s >= self._counts_from_s:
                self.latencies_s.append(now_s - sent_s)

    def receive(self, topic: str, consumer: Any, message: Any) -> None:
        """A consumer's listener."""
        number, sent_s = _HEAD.unpack_from(message.data())
        consumer.acknowledge(message)
        now_s = time.time()
        with self._lock:
            self.received_count += 1
            ids, message_id = self._received.setdefault(topic, {}), str(message.message_id())
            if number not in ids:
                ids[number] = message_id
            elif ids[number] == message_id:
                self.redelivered_count += 1
            else:
                self.repeated_count += 1
            before_s = self._received_s.get(topic, now_s)
            self._received_s[topic] = now_s
            if sent_s >= self._counts_from_s:
                self.longest_gap_s = max(self.longest_gap_s, now_s - before_s)

    def connected(self) -> None:
        """A producer or consumer was connected to a broker."""
        if time.time() >= self._counts_from_s:
            self.connects_count += 1

    @property
    def lost_count(self) -> int:
        """Acknowledged to a producer, and never at the consumer."""
        with self._lock:
            return sum(
                max(0, count - len(self._received.get(topic, ())))
                for topic, count in self._acknowledged.items()
            )

    def summary(self) -> dict[str, Any]:
        """As JSON; milliseconds are of publishing, from sending to the broker's answer."""
        lost_count = self.lost_count
        with self._lock:
            latencies_s = np.array(self.latencies_s or [math.nan])
            return {
                "published": len(self.latencies_s),
                "publish_p50_ms": round(1000 * float(np.percentile(latencies_s, 50)), 1),
                "publish_p99_ms": round(1000 * float(np.percentile(latencies_s, 99)), 1),
                "publish_max_ms": round(1000 * float(latencies_s.max()), 1),
                "publishes_above_1_s": int((latencies_s > _SLOW_S).sum()),
                "failed": dict(self.failed),
                "longest_gap_s": round(self.longest_gap_s, 2),
                "reconnects": self.connects_count,
                "sent": self.sent_count,
                "lost": lost_count,
                "redelivered": self.redelivered_count,
                "repeated": self.repeated_count,
            }


class _Connects(logging.Handler):
    """Counts the client's lines that say that a producer or consumer was connected."""

    def __init__(self, felt: Felt) -> None:
        super().__init__()
        self._felt = felt

    def emit(self, record: logging.LogRecord) -> None:
        if re.search("Created (producer|consumer) on broker", record.getMessage()):
            self._felt.connected()


class Plan:
    """The file that says what goes over each topic, read anew when it changes."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._changed_ns = 0
        self.refresh()

    def refresh(self) -> None:
        """Read it if it has changed."""
        changed_ns = self._file.stat().st_mtime_ns
        if changed_ns != self._changed_ns:
            self._changed_ns = changed_ns
            plan = json.loads(self._file.read_text())
            self.service_url: str = plan["service_url"]
            self.rates: dict[str, float] = plan["messages_per_s"]
            self.noise_ratio: float = plan["noise_ratio"]
            self.seed: int = plan["seed"]
            self.counts_from_s: float = plan["counts_from_s"] or math.inf


def main(file: Path) -> None:
    """Run until SIGTERM."""
    plan, felt = Plan(file), Felt()
    logger = logging.getLogger("pulsar-client")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(_Connects(felt))
    client = pulsar.Client(plan.service_url, logger=logger, operation_timeout_seconds=60)
    for topic in plan.rates:
        client.subscribe(topic, "shop", message_listener=partial(felt.receive, topic))
    producers = {
        topic: client.create_producer(topic, block_if_queue_full=False, max_pending_messages=100_000)
        for topic in plan.rates
    }
    stop = threading.Event()
    with stopped_by_signals(lambda _: stop.set()):
        print("clients are connected", flush=True)  # noqa: T201  who started us waits for it
        _send(producers, plan, felt, stop)
        until_s = time.monotonic() + _REMAINING_S
        while time.monotonic() < until_s and (
            felt.acknowledged_count + sum(felt.failed.values()) < felt.sent_count or felt.lost_count
        ):
            time.sleep(0.1)
        (file.parent / FELT).write_text(json.dumps(felt.summary()))
    client.close()


def _send(producers: dict[str, Any], plan: Plan, felt: Felt, stop: threading.Event) -> None:
    """Send what is due every beat; what is due while a broker stalls is sent all the same, as by an application that may not lose it."""
    numbers = {topic: itertools.count() for topic in producers}
    due, noise = dict.fromkeys(producers, 0.0), dict.fromkeys(producers, 0.0)
    draw = random.Random(plan.seed)  # noqa: S311  the same traffic for everybody
    kept = math.exp(-_NOISE_STEP_S / _NOISE_LASTS_S)
    before_s, noise_s = time.monotonic(), 0.0
    payload = bytes(MESSAGE_BYTES - _HEAD.size)
    while not stop.wait(_BEAT_S):
        now_s = time.monotonic()
        passed_s, before_s = now_s - before_s, now_s
        noise_s += passed_s
        while noise_s >= _NOISE_STEP_S:
            noise_s -= _NOISE_STEP_S
            plan.refresh()
            felt.count_from(plan.counts_from_s)
            for topic in noise:
                noise[topic] = kept * noise[topic] + math.sqrt(1 - kept * kept) * draw.gauss(
                    0.0, plan.noise_ratio
                )
        for topic, producer in producers.items():
            due[topic] += plan.rates[topic] * max(0.0, 1.0 + noise[topic]) * passed_s
            while due[topic] >= 1.0:
                due[topic] -= 1.0
                number, sent_s = next(numbers[topic]), time.time()
                felt.sent_count += 1
                producer.send_async(
                    _HEAD.pack(number, sent_s) + payload, partial(felt.acknowledge, topic, sent_s)
                )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
