"""No move of a policy that asks the rules while it plans is held for a rule afterwards, whatever the fleet and its rules are.

A policy that comes to ask ``RoundView.rules`` is added to ``ASKING``.
"""

import json
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings

from policies.shedding import avg_shedder, fleet_planner
from state.closing import Identity
from state.controller import Controller
from state.events import ActionResult, Event
from state.facts import Isolation
from state.overlay import MaintenanceWindow, moment_at
from state.store import DictStore
from tests.state.traces import CLUSTER, EAGER, Run, facts, load, overlay, seeds, settings_of, sweep

ASKING = [fleet_planner.NAME]
ROUNDS_COUNT = 14


@dataclass
class Cluster:
    """A cluster that does what it is told: a bundle weighs as much CPU as messages, and moves by the next round."""

    random: Random
    owner: dict[str, str] = field(default_factory=dict)
    weight: dict[str, float] = field(default_factory=dict)
    brokers: list[str] = field(default_factory=list)
    rules: dict[str, Any] = field(default_factory=dict)
    guards: dict[str, Any] = field(default_factory=dict)
    drained: str | None = None

    @staticmethod
    def of(seed: int) -> "Cluster":
        random = Random(seed)  # noqa: S311
        brokers = [f"b{at}" for at in range(random.randint(3, 7))]
        namespaces = [f"t/{name}" for name in "abcde"]
        made = Cluster(random, brokers=brokers)
        crowded = random.sample(brokers, max(1, len(brokers) // 3))
        for namespace in namespaces:
            for at in range(random.randint(2, 10)):
                bundle = f"{namespace}/0x{at:08x}_0x{at + 1:08x}"
                made.owner[bundle] = random.choice(crowded if random.random() < 0.7 else brokers)
                made.weight[bundle] = random.choice([1.0, 2.0, 3.0, 5.0, 8.0])
        grouped = random.sample(namespaces, random.randint(2, 5))
        cut = random.randint(2, len(grouped))
        made.rules = {"anti_affinity": {"one": sorted(grouped[:cut]), "two": sorted(grouped[cut:])}}
        if random.random() < 0.5:
            made.rules["failure_domains"] = {"east": brokers[: len(brokers) // 2], "west": brokers[-1:]}
        if random.random() < 0.3:
            made.rules["isolation"] = [Isolation("red", [random.choice(namespaces)], brokers[:2])]
        if random.random() < 0.3:
            made.drained = random.choice(brokers)
        made.guards = {
            f"max_unloads_per_{name}_count": random.randint(1, 4)
            for name in ("round", "hour", "broker", "namespace")
            if random.random() < 0.4
        }
        return made

    def reports(self, at_s: float) -> list[Event]:
        found: list[Event] = []
        for broker in self.brokers:
            bundles = {name: self.weight[name] for name, owner in self.owner.items() if owner == broker}
            total = sum(bundles.values())
            found.append(load(broker, at_s, cpu=min(99.0, 4.0 + total), bundles=bundles, rate=total))
        return found


def played(cluster: Cluster, policy: str) -> Run:
    """Rounds of the cluster under a policy, whose unloads are carried out at once; those without a destination are not."""
    source = settings_of(
        **EAGER | {"split": {}, "bundle_average_samples": 1},
        shedding_policy=policy,
        rounds={"warmup_rounds": 0, "quorum_ratio": 0.0},
        guards={"bundle_cooldown_s": 20.0, **cluster.guards},
    )
    controller = Controller(CLUSTER, DictStore(), identity=Identity(mode="act"), settings=source)
    found = Run()

    def step(event: Event) -> None:
        found.outputs += controller.step(event).outputs

    step(facts(1, **cluster.rules))
    if cluster.drained:
        window = MaintenanceWindow(since=moment_at(0), who="ann", why="a test")
        step(overlay(0, drained_brokers={cluster.drained: window}))
    known = 0
    for number in range(ROUNDS_COUNT):
        at_s = 10.0 * number
        for output in found.outputs[known:]:
            action = json.loads(output.data)
            if output.kind == "action" and action["destination_broker"] is not None:
                cluster.owner[action["bundle"]] = action["destination_broker"]
                done_ms = round(1000 * at_s) + 6000
                step(ActionResult(id=output.id, time_ms=done_ms, action_id=output.id, outcome="succeeded"))
        known = len(found.outputs)
        for each in cluster.reports(at_s + 5):
            step(each)
        step(sweep(at_s + 16))
    return found


def held(found: Run) -> list[tuple[int, dict[str, int]]]:
    """Rounds that held unloads of the policy, which a detail explains, with the outcomes of its bundles.

    A bundle of a broker that did not fire was not chosen: its detail says which rule the policy kept to.
    """
    rounds = []
    for each in found.summaries:
        fired = {row["high_broker"] for row in each["examined"]["heaviest"] if row["outcome"] == "fired"}
        chosen = [row for row in each["candidates"]["heaviest"] if row["broker"] in fired]
        if any(row["detail"] != row["outcome"] for row in chosen):
            rounds.append((each["round"], each["candidates"]["outcomes"]))
    return rounds


@pytest.mark.parametrize("policy", ASKING)
def test_no_move_of_a_policy_that_asks_the_rules_is_held_for_one(policy: str) -> None:
    moves = Counter[str]()

    @settings(max_examples=30, deadline=None, derandomize=True, database=None)
    @given(seeds)
    def look(seed: int) -> None:
        found = played(Cluster.of(seed), policy)
        moves.update(each["policy"] for each in found.actions)
        assert held(found) == []

    look()
    assert moves[policy] > 30, "a property over fleets in which nothing moves would prove nothing"


def test_pulsars_policies_do_not_ask_and_are_held() -> None:
    reasons = Counter[str]()
    for seed in range(20):
        for _, outcomes in held(played(Cluster.of(seed), avg_shedder.POLICY.name)):
            reasons.update(outcomes)
    assert reasons.keys() >= {"anti-affinity", "budget"}
