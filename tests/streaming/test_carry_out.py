"""What the executor makes of answers a healthy Pulsar does not give: only what is seen afterwards counts."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from streaming.execute.carry_out import Done, Executor
from streaming.execute.orders import Held, Order, Precondition, Skip, SplitOrder, UnloadOrder
from streaming.pulsar_admin import AdminError, BundleName, HttpClient, PulsarAdmin
from streaming.settings import PulsarTarget
from tests.streaming.http_broker import Answer, Asked, Broker, http_brokers

BUNDLE = BundleName("t/n", 0, 0x80000000)
MIDDLE = 0x40000000
OK: Answer = (204, {}, b"")
SILENCE: Answer = (200, {}, None)


def refusal(status: int, reason: str = "because") -> Answer:
    return status, {}, json.dumps({"reason": reason}).encode()


@dataclass(slots=True)
class Cluster:
    """Two brokers that tell the truth about what they own, and answer a change with the next of ``answers``."""

    make: Callable[[Callable[[Asked], Answer]], Broker]
    answers: list[Answer]
    takes: int
    """The call, from 1 on, that really does it; 0 for none."""
    boundaries: list[int] = field(default_factory=lambda: [0, 0x80000000, 0xFFFFFFFF])
    changes: list[Asked] = field(default_factory=list)
    stumbles: dict[str, int] = field(default_factory=dict)
    """How often still a question is answered with 500, by how its path begins."""
    still: Callable[[], None] = lambda: None
    """Asked right before each call."""
    brokers: list[Broker] = field(init=False)
    owner: str = field(init=False)

    def __post_init__(self) -> None:
        self.brokers = [self.make(lambda asked, at=at: self.answer(asked, at)) for at in range(2)]  # type: ignore[misc]
        self.owner = self.ids[0]

    @property
    def ids(self) -> list[str]:
        return [broker.url.removeprefix("http://") for broker in self.brokers]

    def answer(self, asked: Asked, at: int) -> Answer:
        path = asked.path.partition("?")[0]
        if asked.method == "PUT":
            return self._change(asked)
        if self._stumbles(path):
            return refusal(500)
        return self._said(path, at)

    def _stumbles(self, path: str) -> bool:
        question = next(
            (each for each, times in self.stumbles.items() if times and path.startswith(each)), None
        )
        if question is not None:
            self.stumbles[question] -= 1
        return question is not None

    def _said(self, path: str, at: int) -> Answer:
        if path.endswith("/ownedNamespaces"):
            return self._json({str(BUNDLE): {}} if self.ids[at] == self.owner else {})
        if path.endswith("/brokers/c"):
            return self._json(self.ids)
        if path.endswith("/bundles"):
            return self._json({"boundaries": [hex(each) for each in self.boundaries]})
        if path.startswith("/lookup/"):
            return self._json({"httpUrl": f"http://{self.owner}"})
        return self._json([])

    def _change(self, asked: Asked) -> Answer:
        self.changes.append(asked)
        if len(self.changes) == self.takes:
            if asked.path.partition("?")[0].endswith("/split"):
                self.boundaries = sorted({*self.boundaries, *json.loads(asked.body)})
            else:
                self.owner = self.ids[1]
        return self.answers[min(len(self.changes), len(self.answers)) - 1]

    @staticmethod
    def _json(value: object) -> Answer:
        return 200, {}, json.dumps(value).encode()

    def carry_out(self, action: UnloadOrder | SplitOrder) -> Done | Skip:
        patience_s = 0.5 if SILENCE in self.answers else 10.0  # a busy machine is not a silent broker
        target = PulsarTarget(admin_url=self.brokers[0].url, timeout_s=patience_s)
        with HttpClient(target) as http:
            executor = Executor(
                PulsarAdmin(http, target), pulsar_cluster="c", verify_timeout_s=0.6, pause=lambda _: None
            )
            order = Order(id="a", source="/c", epoch=1, action=action, bundle=BUNDLE)
            return executor.carry_out(order, self.still)

    def unload(self) -> Done | Skip:
        return self.carry_out(UnloadOrder(**self._common(), destination_broker=self.ids[1]))

    def split(self) -> Done | Skip:
        return self.carry_out(SplitOrder(**self._common(), boundaries=[MIDDLE]))

    def _common(self) -> dict[str, Any]:
        return {
            "bundle": str(BUNDLE),
            "precondition": Precondition(owner=self.ids[0], range=BUNDLE.range),
            "expires_at": datetime.max.replace(tzinfo=UTC),
            "dry_run": False,
        }


@pytest.fixture
def cluster() -> Iterator[Callable[..., Cluster]]:
    """A maker of clusters."""
    with http_brokers() as make:
        yield lambda answers, takes: Cluster(make, answers, takes)


CASES = [
    pytest.param([OK], 1, "succeeded", "", 1, id="204 and done"),
    pytest.param([OK], 0, "failed", None, 1, id="204 and nothing happened"),
    pytest.param([SILENCE], 1, "succeeded", "", 1, id="no answer, but done"),
    pytest.param([SILENCE], 0, "failed", "no answer within", 1, id="no answer, nothing done"),
    pytest.param([refusal(404)], 0, "failed", "Pulsar does not know it", 1, id="404"),
    pytest.param([refusal(409)], 0, "failed", "changed it at the same time", 4, id="409 again and again"),
    pytest.param([refusal(409), OK], 2, "succeeded", "", 2, id="409, then done"),
    pytest.param([refusal(412)], 0, "failed", "finds the request impossible", 1, id="412"),
    pytest.param([refusal(412)], 1, "succeeded", "", 1, id="412 of what is done all the same"),
    pytest.param([refusal(500)], 0, "failed", "the broker's log says more", 4, id="500 again and again"),
    pytest.param([refusal(500), refusal(500), OK], 3, "succeeded", "", 3, id="500 twice, then done"),
    pytest.param([refusal(403)], 0, "failed", "superUserRoles", 1, id="403"),
]


@pytest.mark.parametrize("kind", ["unload", "split"])
@pytest.mark.parametrize(("answers", "takes", "outcome", "said", "calls"), CASES)
def test_what_is_seen_afterwards_counts_and_only_what_may_pass_is_tried_again(
    cluster: Callable[..., Cluster],
    kind: str,
    answers: list[Answer],
    takes: int,
    outcome: str,
    said: str | None,
    calls: int,
) -> None:
    pulsar = cluster(answers, takes)
    done = pulsar.unload() if kind == "unload" else pulsar.split()
    assert isinstance(done, Done)
    if said is None:
        said = "not seen elsewhere within 0.6 s" if kind == "unload" else "fewer than two topics"
    assert (done.outcome, said in (done.reason or "")) == (outcome, True), done.reason
    assert len(pulsar.changes) == calls


QUESTIONS = ["/admin/v2/brokers/c", "/admin/v2/brokers/c/", "/admin/v2/namespaces/", "/admin/v2/persistent/"]


@pytest.mark.parametrize("kind", ["unload", "split"])
@pytest.mark.parametrize("question", QUESTIONS)
def test_a_broker_that_fails_to_answer_beforehand_is_asked_again(
    cluster: Callable[..., Cluster], kind: str, question: str
) -> None:
    pulsar = cluster([OK], 1)
    pulsar.stumbles = {question: 3}
    done = pulsar.unload() if kind == "unload" else pulsar.split()
    assert isinstance(done, Done)
    assert done.outcome == "succeeded"


@pytest.mark.parametrize("kind", ["unload", "split"])
def test_nothing_is_called_where_it_cannot_be_asked_beforehand(
    cluster: Callable[..., Cluster], kind: str
) -> None:
    pulsar = cluster([OK], 1)
    pulsar.stumbles = {"/admin/v2/namespaces/": 99}
    with pytest.raises(AdminError, match="the broker's log says more"):
        pulsar.unload() if kind == "unload" else pulsar.split()
    assert not pulsar.changes


@pytest.mark.parametrize("kind", ["unload", "split"])
def test_a_redirect_is_followed_to_the_broker_that_can_do_it(
    cluster: Callable[..., Cluster], kind: str
) -> None:
    pulsar = cluster([OK], 2)
    first = pulsar.brokers[0]
    truth = first.answer
    to = pulsar.brokers[1].url

    def redirecting(asked: Asked) -> Answer:
        if asked.method != "PUT":
            return truth(asked)
        pulsar.changes.append(asked)
        return 307, {"Location": f"{to}{asked.path}"}, b""

    first.answer = redirecting
    done = pulsar.unload() if kind == "unload" else pulsar.split()
    assert isinstance(done, Done)
    assert done.outcome == "succeeded"
    sent, followed = pulsar.changes
    assert (sent.method, sent.path, sent.body) == (followed.method, followed.path, followed.body)


def held_at(attempt: int) -> Callable[[], None]:
    """Nothing is against it before that attempt."""
    attempts = iter(range(1, 99))

    def still() -> None:
        if next(attempts) == attempt:
            raise Held(Skip("expired", "meanwhile"))

    return still


@pytest.mark.parametrize("kind", ["unload", "split"])
def test_what_is_held_right_before_its_call_is_not_called(cluster: Callable[..., Cluster], kind: str) -> None:
    pulsar = cluster([OK], 1)
    pulsar.still = held_at(1)
    with pytest.raises(Held):
        pulsar.unload() if kind == "unload" else pulsar.split()
    assert not pulsar.changes


@pytest.mark.parametrize("kind", ["unload", "split"])
@pytest.mark.parametrize(("takes", "outcome"), [(1, "succeeded"), (0, "failed")])
def test_what_is_held_after_a_call_that_failed_is_not_called_again_but_looked_after(
    cluster: Callable[..., Cluster], kind: str, takes: int, outcome: str
) -> None:
    pulsar = cluster([refusal(500)], takes)
    pulsar.still = held_at(2)
    done = pulsar.unload() if kind == "unload" else pulsar.split()
    assert isinstance(done, Done)
    assert done.outcome == outcome
    assert len(pulsar.changes) == 1
