"""How the executor treats answers that a healthy Pulsar does not give, and load managers with ways of their own to split: only what it sees afterwards counts."""

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

import pytest

from policies.splitting.ranges import Bundle, BundleRange
from streaming.contract.messages import ActionResultData
from streaming.executor.orders import (
    Held,
    Order,
    Precondition,
    Skip,
    SplitAction,
    UnloadAction,
)
from streaming.executor.pulsar import Executor
from streaming.pulsar.admin import PulsarAdmin
from streaming.pulsar.http import AdminError, HttpClient
from streaming.settings import PulsarTarget
from tests.streaming.http_broker import Answer, Asked, Broker, Brokers, answer_owner, http_brokers

BUNDLE = Bundle("t/n", BundleRange(0, 0x80000000))
MIDDLE = 0x40000000
OK: Answer = (204, {}, b"")
SILENCE: Answer = (200, {}, None)


def refusal(status: int, reason: str = "because") -> Answer:
    return status, {}, json.dumps({"reason": reason}).encode()


@dataclass(slots=True)
class Cluster:
    """Two brokers that report truly what they own, and answer each change with the next of ``answers``."""

    make: Brokers
    answers: list[Answer]
    takes: int
    """Number of the call, from 1 on, that really makes the change; 0 for none."""
    boundaries: list[int] = field(default_factory=lambda: [0, 0x80000000, 0xFFFFFFFF])
    changes: list[Asked] = field(default_factory=list)
    stumbles: dict[str, int] = field(default_factory=dict)
    """How many more times a question is answered with 500, by the beginning of its path."""
    recheck: Callable[[], None] = lambda: None
    """The executor calls it right before each change; it raises ``Held`` to prevent the change."""
    is_one_by_one: bool = False
    """Whether it makes each change that it answers with OK, and refuses several boundaries, as the extensible load manager does."""
    brokers: list[Broker] = field(init=False)
    owner: str = field(init=False)
    assigns_to: str | None = None
    """Broker that gets the bundle when it is looked up and has no owner."""
    isolation: dict[str, object] = field(default_factory=dict)
    more_brokers: list[str] = field(default_factory=list)
    """Brokers that are alive and own nothing."""

    def __post_init__(self) -> None:
        self.brokers = [self.make(self.answer) for _ in range(2)]
        self.owner = self.ids[0]

    @property
    def ids(self) -> list[str]:
        return [broker.url.removeprefix("http://") for broker in self.brokers]

    def answer(self, asked: Asked) -> Answer:
        path = asked.path.partition("?")[0]
        if asked.method == "PUT":
            return self._change(asked)
        if self._stumbles(path):
            return refusal(500)
        if path.endswith("/configuration/runtime"):
            manager = "ExtensibleLoadManagerImpl" if self.is_one_by_one else "ModularLoadManagerImpl"
            return self._json({"clusterName": "c", "loadManagerClassName": f"org.example.{manager}"})
        if path.endswith("/topicHashPositions"):
            return answer_owner(asked, self.owner and f"http://{self.owner}")
        return self._said(path)

    def _stumbles(self, path: str) -> bool:
        question = next(
            (each for each, times in self.stumbles.items() if times and path.startswith(each)), None
        )
        if question is not None:
            self.stumbles[question] -= 1
        return question is not None

    def _said(self, path: str) -> Answer:
        if path.endswith("/brokers/c"):
            return self._json([*self.ids, *self.more_brokers])
        if path.endswith("/namespaceIsolationPolicies"):
            return self._json(self.isolation)
        if path.endswith("/bundles"):
            return self._json({"boundaries": [hex(each) for each in self.boundaries]})
        if path.startswith("/lookup/"):
            self.owner = self.owner or self.assigns_to or ""
            return self._json({"httpUrl": f"http://{self.owner}"})
        return self._json([])

    def _change(self, asked: Asked) -> Answer:
        self.changes.append(asked)
        if self.is_one_by_one and (len(json.loads(asked.body)) > 1 or len(self.changes) > len(self.answers)):
            return refusal(412, "Split bundle failed due to invalid request")
        answer = self.answers[min(len(self.changes), len(self.answers)) - 1]
        if answer == OK if self.is_one_by_one else len(self.changes) == self.takes:
            if asked.path.partition("?")[0].endswith("/split"):
                self.boundaries = sorted({*self.boundaries, *json.loads(asked.body)})
            else:
                self.owner = self.ids[1]
        return answer

    @staticmethod
    def _json(value: object) -> Answer:
        return 200, {}, json.dumps(value).encode()

    def carry_out(self, action: UnloadAction | SplitAction) -> ActionResultData | Skip:
        patience_s = 0.5 if SILENCE in self.answers else 10.0  # a busy machine is not a silent broker
        target = PulsarTarget(admin_url=self.brokers[0].url, timeout_s=patience_s)
        with HttpClient(target) as http:
            executor = Executor(
                PulsarAdmin(http, target), pulsar_cluster="c", verify_timeout_s=0.6, pause=lambda _: None
            )
            order = Order(id="a", source="/c", epoch=1, action=action)
            return executor.carry_out(order, self.recheck)

    def do(self, kind: str) -> ActionResultData | Skip:
        return self.unload() if kind == "unload" else self.split()

    def unload(self) -> ActionResultData | Skip:
        return self.carry_out(UnloadAction(**self._common(), destination_broker=self.ids[1]))

    def split(self, *boundaries: int) -> ActionResultData | Skip:
        return self.carry_out(SplitAction(**self._common(), boundaries=list(boundaries) or [MIDDLE]))

    def _common(self) -> dict[str, Any]:
        return {
            "bundle_name": str(BUNDLE),
            "precondition": Precondition(owner=self.ids[0], range=str(BUNDLE.range)),
            "expires_at": datetime.max.replace(tzinfo=UTC),
            "dry_run": False,
        }


Clusters = Callable[..., Cluster]


@pytest.fixture
def cluster() -> Iterator[Clusters]:
    """A function that makes clusters."""
    with http_brokers() as make:
        yield lambda answers, takes, **more: Cluster(make, answers, takes, **more)


CASES = [
    pytest.param([OK], 1, "succeeded", "", 1, id="204 and done"),
    pytest.param([OK], 0, "failed", None, None, id="204 and nothing happened"),
    pytest.param([SILENCE], 1, "succeeded", "", 1, id="no answer, but done"),
    pytest.param([SILENCE], 0, "failed", "no answer within", 1, id="no answer, nothing done"),
    pytest.param([refusal(404)], 0, "failed", "Pulsar does not know it", 1, id="404"),
    pytest.param([refusal(409)], 0, "failed", "changed it at the same time", 4, id="409 again and again"),
    pytest.param([refusal(409), OK], 2, "succeeded", "", 2, id="409, then done"),
    pytest.param([refusal(412)], 0, "failed", "cannot carry out the request", 1, id="412"),
    pytest.param([refusal(412)], 1, "succeeded", "", 1, id="412 of what is done all the same"),
    pytest.param([refusal(500)], 0, "failed", "the broker's log says more", 4, id="500 again and again"),
    pytest.param([refusal(500), refusal(500), OK], 3, "succeeded", "", 3, id="500 twice, then done"),
    pytest.param([refusal(403)], 0, "failed", "superUserRoles", 1, id="403"),
]


@pytest.mark.parametrize("kind", ["unload", "split"])
@pytest.mark.parametrize(("answers", "takes", "outcome", "message", "calls"), CASES)
def test_what_is_seen_afterwards_counts_and_only_what_may_pass_is_tried_again(
    cluster: Clusters,
    kind: str,
    answers: list[Answer],
    takes: int,
    outcome: str,
    message: str | None,
    calls: int | None,
):
    pulsar = cluster(answers, takes)
    done = pulsar.do(kind)
    if message is None:
        message = "took it back after each of 4 unloads" if kind == "unload" else "fewer than two topics"
    assert (done.outcome, message in (done.reason or "")) == (outcome, True), done.reason
    assert len(pulsar.changes) == (calls or (4 if kind == "unload" else 1))


QUESTIONS = ["/admin/v2/brokers/c", "/admin/v2/brokers/c/", "/admin/v2/namespaces/", "/admin/v2/persistent/"]


@pytest.mark.parametrize("kind", ["unload", "split"])
@pytest.mark.parametrize("question", QUESTIONS)
def test_a_broker_that_fails_to_answer_beforehand_is_asked_again(cluster: Clusters, kind: str, question: str):
    pulsar = cluster([OK], 1)
    pulsar.stumbles = {question: 3}
    done = pulsar.do(kind)
    assert done.outcome == "succeeded"


@pytest.mark.parametrize("kind", ["unload", "split"])
def test_nothing_is_called_where_it_cannot_be_asked_beforehand(cluster: Clusters, kind: str):
    pulsar = cluster([OK], 1)
    pulsar.stumbles = {"/admin/v2/namespaces/": 99}
    with pytest.raises(AdminError, match="the broker's log says more"):
        pulsar.do(kind)
    assert not pulsar.changes


@pytest.mark.parametrize("kind", ["unload", "split"])
def test_a_redirect_is_followed_to_the_broker_that_can_do_it(cluster: Clusters, kind: str):
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
    done = pulsar.do(kind)
    assert done.outcome == "succeeded"
    sent, followed = pulsar.changes
    assert (sent.method, sent.path, sent.body) == (followed.method, followed.path, followed.body)


def held_at(attempt: int) -> Callable[[], None]:
    """A check that raises ``Held`` at that attempt, from 1 on, and at no other."""
    attempts = iter(range(1, 99))

    def recheck() -> None:
        if next(attempts) == attempt:
            raise Held(Skip("expired", "meanwhile"))

    return recheck


@pytest.mark.parametrize("kind", ["unload", "split"])
def test_what_is_held_right_before_its_call_is_not_called(cluster: Clusters, kind: str):
    pulsar = cluster([OK], 1)
    pulsar.recheck = held_at(1)
    with pytest.raises(Held):
        pulsar.do(kind)
    assert not pulsar.changes


@pytest.mark.parametrize("kind", ["unload", "split"])
@pytest.mark.parametrize(("takes", "outcome"), [(1, "succeeded"), (0, "failed")])
def test_what_is_held_after_a_call_that_failed_is_not_called_again_but_looked_after(
    cluster: Clusters, kind: str, takes: int, outcome: str
):
    pulsar = cluster([refusal(500)], takes)
    pulsar.recheck = held_at(2)
    done = pulsar.do(kind)
    assert done.outcome == outcome
    assert len(pulsar.changes) == 1


def test_a_bundle_that_its_broker_takes_back_is_unloaded_again(cluster: Clusters):
    pulsar = cluster([OK], 2)
    done = pulsar.unload()
    assert done == ActionResultData(outcome="succeeded", broker=pulsar.ids[1])
    assert len(pulsar.changes) == 2


def test_a_lookup_that_fails_for_a_moment_is_no_verdict(cluster: Clusters):
    pulsar = cluster([OK], 2)
    pulsar.stumbles = {"/lookup/": 1}
    done = pulsar.unload()
    assert (done.outcome, done.broker) == ("succeeded", pulsar.ids[1]), done.reason


def test_a_question_after_a_split_that_fails_for_a_moment_is_no_verdict(cluster: Clusters):
    pulsar = cluster([OK], 1)
    pulsar.recheck = lambda: pulsar.stumbles.update({"/admin/v2/namespaces/": 1})
    done = pulsar.split()
    assert done.outcome == "succeeded", done.reason


def test_a_bundle_that_moved_has_moved_whether_or_not_the_isolation_groups_can_be_read(cluster: Clusters):
    pulsar = cluster([OK], 1)
    wanted = pulsar.make(pulsar.answer).url.removeprefix("http://")
    pulsar.more_brokers = [wanted]
    pulsar.stumbles = {"/admin/v2/clusters/": 100}
    done = pulsar.carry_out(UnloadAction(**pulsar._common(), destination_broker=wanted))
    assert (done.outcome, done.broker) == ("succeeded", pulsar.ids[1]), done.reason


def test_what_may_not_be_tried_any_more_is_not_unloaded_again(cluster: Clusters):
    pulsar = cluster([OK], 0)
    pulsar.recheck = held_at(2)
    done = pulsar.unload()
    assert (done.outcome, len(pulsar.changes)) == ("failed", 1)
    assert "took it back; expired" in (done.reason or "")


@pytest.mark.parametrize("owner", [1, None], ids=["it is at another broker", "it belongs to nobody yet"])
def test_an_unload_without_destination_done_again_says_what_it_said(cluster: Clusters, owner: int | None):
    """The executor was killed between the call and the result: the bundle has left its broker, so no call is made again."""
    pulsar = cluster([OK], 1)
    order = UnloadAction(**pulsar._common(), destination_broker=None)
    first = pulsar.carry_out(order)
    assert first == ActionResultData(outcome="succeeded", broker=pulsar.ids[1])
    pulsar.owner = "" if owner is None else pulsar.ids[owner]
    pulsar.assigns_to = pulsar.ids[1]
    again = pulsar.carry_out(order)
    assert (again.outcome, again.broker) == (first.outcome, first.broker)
    assert len(pulsar.changes) == 1


@pytest.mark.parametrize(("primary", "outcome"), [("127.0.0.1", "succeeded"), ("10.0.0.1", "failed")])
def test_a_bundle_that_landed_in_another_group_did_not_succeed(cluster: Clusters, primary: str, outcome: str):
    pulsar = cluster([OK], 1)
    policy = {"namespaces": ["t/n"], "primary": [primary], "secondary": []}
    pulsar.isolation = {"p": policy}
    wanted = pulsar.make(pulsar.answer).url.removeprefix("http://")
    pulsar.more_brokers = [wanted]
    done = pulsar.carry_out(UnloadAction(**pulsar._common(), destination_broker=wanted))
    assert (done.outcome, done.broker) == (outcome, pulsar.ids[1])
    assert f"it landed on {pulsar.ids[1]}, not on {wanted}" in (done.reason or "")


def test_unloads_of_equal_ranges_in_two_namespaces_do_not_cross_over():
    """The load manager keeps the destination by range alone, as Pulsar's did: the second call overwrites the first one's."""
    one, two = BUNDLE, Bundle("t/m", BUNDLE.range)
    with http_brokers() as make:
        both_called, hint = threading.Barrier(2), {}
        owners: dict[str, str] = {}

        def answer(asked: Asked) -> Answer:
            path, _, query = asked.path.partition("?")
            namespace = next((each for each in ("t/n", "t/m") if each in path), "")
            if asked.method == "PUT":
                hint[str(BUNDLE.range)] = unquote(query.partition("=")[2])
                owners.pop(namespace)
                with suppress(threading.BrokenBarrierError):
                    both_called.wait(timeout=0.5)
                return OK
            if path.startswith("/lookup/"):
                owners.setdefault(namespace, hint.pop(str(BUNDLE.range), ids[0]))
                return Cluster._json({"httpUrl": f"http://{owners[namespace]}"})
            if path.endswith("/topicHashPositions"):
                return answer_owner(asked, f"http://{owners[namespace]}" if namespace in owners else "")
            if path.endswith("/bundles"):
                return Cluster._json({"boundaries": ["0x0", hex(BUNDLE.range.upper), "0xffffffff"]})
            return Cluster._json(ids if path.endswith("/brokers/c") else [])

        brokers = [make(answer) for _ in range(3)]
        ids = [broker.url.removeprefix("http://") for broker in brokers]
        owners |= {"t/n": ids[0], "t/m": ids[0]}
        target = PulsarTarget(admin_url=brokers[0].url, timeout_s=10)
        with HttpClient(target) as http, ThreadPoolExecutor(2) as pool:
            executor = Executor(PulsarAdmin(http, target), pulsar_cluster="c", verify_timeout_s=5)
            orders = [
                Order(
                    id=str(bundle),
                    source="/c",
                    epoch=1,
                    action=UnloadAction(
                        bundle_name=str(bundle),
                        precondition=Precondition(owner=ids[0], range=str(bundle.range)),
                        expires_at=datetime.max.replace(tzinfo=UTC),
                        dry_run=False,
                        destination_broker=ids[at],
                    ),
                )
                for at, bundle in ((1, one), (2, two))
            ]
            found = list(pool.map(lambda order: executor.carry_out(order, lambda: None), orders, timeout=60))
    assert [
        (each.outcome, each.broker, each.reason) for each in found if isinstance(each, ActionResultData)
    ] == [
        ("succeeded", ids[1], None),
        ("succeeded", ids[2], None),
    ]


def test_an_extensible_load_manager_is_asked_for_one_cut_after_the_other(cluster: Clusters):
    there = cluster(answers=[OK, OK, OK], takes=0, is_one_by_one=True)
    done = there.split(0x10000000, 0x20000000, MIDDLE)
    assert done.outcome == "succeeded"
    cuts = [
        (asked.path.partition("/split")[0].rpartition("/")[2], json.loads(asked.body))
        for asked in there.changes
    ]
    assert cuts == [
        ("0x00000000_0x80000000", [0x10000000]),
        ("0x10000000_0x80000000", [0x20000000]),
        ("0x20000000_0x80000000", [MIDDLE]),
    ]


def test_cuts_that_were_made_before_one_failed_are_counted_in_the_reason(cluster: Clusters):
    there = cluster(answers=[OK], takes=0, is_one_by_one=True)
    done = there.split(0x10000000, MIDDLE)
    assert done.outcome == "failed"
    assert str(done.reason).startswith("only 1 of 2 cuts were made: ")
    assert "412" in str(done.reason)


def test_the_modular_load_manager_is_asked_for_all_cuts_at_once(cluster: Clusters):
    there = cluster(answers=[OK], takes=1)
    done = there.split(0x10000000, MIDDLE)
    assert done.outcome == "succeeded"
    assert [json.loads(asked.body) for asked in there.changes] == [[0x10000000, MIDDLE]]
