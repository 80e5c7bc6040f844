"""The closed loop: a candidate balances the recorded cluster, and its moves have their effect."""

from dataclasses import dataclass

from state.controller import Controller
from state.events import ActionOutcome, ActionResult
from state.outputs import Output
from state.settings import PulsarSettings
from state.store import DictStore
from streaming.simulator.backtest.reading import Read
from streaming.simulator.backtest.survey import Survey
from streaming.simulator.backtest.world import Landed, World
from streaming.simulator.comparing import Candidate, Run, series_of
from streaming.simulator.fleet import Moved, Order
from streaming.simulator.players import ACTING, Wish, wishes_of
from streaming.simulator.score import Counter


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedJob:
    """One candidate on one recorded cluster."""

    read: Read
    survey: Survey
    candidate: Candidate
    judge: PulsarSettings
    """The settings that decide how loaded a broker is and how long a round of the score card is, the same for every candidate."""
    keeps_recorded_moves: bool


def play_closed(job: ClosedJob) -> Run:
    """Balance the recorded cluster from the first report to the last."""
    return _Loop(job).play()


class _Loop:
    def __init__(self, job: ClosedJob) -> None:
        self._job = job
        brokers = job.survey.brokers
        self._world = World(
            brokers, job.survey.costs, job.judge, keeps_recorded_moves=job.keeps_recorded_moves
        )
        self._counter = Counter(self._world, brokers, round_s=job.judge.rounds.length_s)
        settings, cluster = job.candidate.settings, job.survey.cluster
        self._controller = (
            None if settings is None else Controller(cluster, DictStore(), identity=ACTING, settings=settings)
        )
        self._round_ms = round(1000 * job.judge.rounds.length_s)
        self._next_ms = job.survey.first_ms + self._round_ms

    def play(self) -> Run:
        job, world = self._job, self._world
        for cluster, event in job.read():
            if cluster != job.survey.cluster:
                continue
            self._end_rounds(event.time_ms)
            seen = world.take(event)
            if seen is not None and self._controller is not None:
                self._act(self._controller.step(seen).outputs)
        self._end_round()
        return Run(
            scenario=job.survey.cluster,
            candidate=job.candidate.name,
            seed=0,
            score=self._counter.score(),
            series=series_of(self._counter, start_ms=job.survey.first_ms),
        )

    def _end_rounds(self, time_ms: int) -> None:
        """End the rounds before an event; in a gap of the recording only the first, because nothing is known of the others."""
        if time_ms < self._next_ms:
            return
        self._end_round()
        self._next_ms += self._round_ms * ((time_ms - self._next_ms) // self._round_ms + 1)

    def _end_round(self) -> None:
        self._world.end_round()
        if self._world.alive.any():
            self._counter.end_round()

    def _act(self, outputs: list[Output]) -> None:
        wishes, cuts = wishes_of(outputs)
        for wish in wishes:
            self._unload(wish)
        for each in cuts:
            succeeded = self._world.split(each.bundle, each.boundaries)
            self._counter.splits += succeeded
            self._answer(each.id, succeeded=succeeded)

    def _unload(self, wish: Wish) -> None:
        self._counter.note_decision(wish.bundle)
        landed = self._world.unload(wish.bundle, wish.destination)
        self._counter.note_moved(self._make_moved(wish, landed))
        self._answer(wish.id, succeeded=landed is not None)

    def _make_moved(self, wish: Wish, landed: Landed | None) -> Moved:
        time_s = (self._world.now_ms - self._job.survey.first_ms) / 1000
        order = Order(id=wish.id, bundle=wish.bundle, destination=None, begins_s=time_s, fails=landed is None)
        if landed is None:
            return Moved(order=order, succeeded=False, time_s=time_s)
        return Moved(
            order=order,
            succeeded=True,
            time_s=time_s,
            source=landed.source,
            destination=landed.destination,
            messages_per_s=landed.messages_per_s,
        )

    def _answer(self, id_: str, *, succeeded: bool) -> None:
        """Give the controller the result of an action, as an executor does."""
        outcome: ActionOutcome = "succeeded" if succeeded else "failed"
        assert self._controller is not None
        result = ActionResult(id=f"result/{id_}", time_ms=self._world.now_ms, action_id=id_, outcome=outcome)
        self._act(self._controller.step(result).outputs)
