"""A collector is alive while it begins sweeps, also when they fail."""

import threading
from io import BytesIO

from streaming.collector.collector import Cadence, Collector
from streaming.collector.metrics import CollectorMetrics
from streaming.process.heartbeat import Heartbeat
from streaming.transport.side import LineEvents


class Hanging(Collector):
    """A collector whose second sweep hangs until ``go_on`` is set."""

    def __init__(self) -> None:
        cadence = Cadence(length_s=0.02, lateness_s=0.0, sweeps_per_round=2)
        sink = LineEvents(BytesIO())
        super().__init__(CollectorMetrics("c"), cluster="c", sink=sink, cadence=cadence, clock_s=lambda: 0.0)
        self.now_s = 0.0
        self._heartbeat = Heartbeat(self._begun, clock_s=lambda: self.now_s)
        self._heartbeat.give(self._swept)
        self.hangs, self.go_on = threading.Event(), threading.Event()
        self.count = 0

    def sweep(self) -> bool:
        self.count += 1
        if self.count == 2:
            self.hangs.set()
            assert self.go_on.wait(30)
            self.stop()
        return False

    def close(self) -> None:
        pass


def test_a_collector_whose_sweep_hangs_is_not_alive_and_one_whose_cluster_does_not_answer_is() -> None:
    made = Hanging()
    thread = threading.Thread(target=made.run)
    thread.start()
    assert made.hangs.wait(30)
    assert all(check.ok for check in made.liveness()), "its first sweep failed"
    made.now_s = 100.0
    assert not all(check.ok for check in made.readiness())
    made.now_s = 601.0
    assert not all(check.ok for check in made.liveness())
    made.go_on.set()
    thread.join(30)
    assert not thread.is_alive()
