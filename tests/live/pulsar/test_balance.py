"""The live proof: collector, controller and executor beside a real cluster with real traffic, unbalanced at first.

Measured by the brokers' own reports, before and after. A broker is drained, proposals are approved, and groups are kept apart, too.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from deploy.local.pulsar import LocalPulsar
from policies.splitting.ranges import Bundle
from streaming.collector.reports import read_report
from streaming.pulsar.http import AdminError
from tests.support.operating import output_of
from tests.support.processes import Warm, command
from tests.support.pulsar import CLUSTER, Lab, PulsarStage, change_events_hash
from tests.support.pulsar_programs import Trio, all_at_first, controller, gather, rates, trio, unbalanced
from tests.support.stage import Stage, assert_replayed_alike

pytestmark = pytest.mark.live


HOT_TOPICS = 6


def is_balanced(loads: Sequence[float], *, share: float = 0.5) -> bool:
    """Every broker carries some of it, none as much as ``share``."""
    return bool(loads) and min(loads) > 0 and max(loads) < share * sum(loads)


def went_astray(result: dict[str, object]) -> bool:
    """Whether Pulsar put the bundle at another broker than it was told to; it rests there until its cooldown is over."""
    return "it landed on" in str(result["reason"])


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["fleet-planner", "avg-shedder"])
def test_an_unbalanced_cluster_is_balanced_and_a_hot_bundle_cut(
    any_pulsar: LocalPulsar, stage: Stage, warm: Warm, tmp_path: Path, policy: str
):
    pulsar = any_pulsar
    hot = Lab(pulsar, bundles_count=1)
    (bundle,) = hot.bundles()
    hot_topics = [hot.topic_in(bundle, number=number) for number in range(HOT_TOPICS)]
    with controller(pulsar, stage, warm, policy=policy) as running, unbalanced(pulsar) as lab:
        before = lab.until(lambda: all_at_first(lab), "traffic")
        with trio(lab, stage, running, tmp_path) as three:

            def balanced() -> list[float]:
                found = rates(lab, pulsar.broker_ids)
                astray = any(went_astray(result) for _, result in three.results())
                return found if is_balanced(found, share=0.6 if astray else 0.5) else []

            after = three.until(balanced, "balance")
            with hot.traffic(hot_topics):
                three.until(lambda: len(hot.bundles()) > 1, "a cut")
                three.wait_for_all_results()
        decided, results = three.actions(), three.results()
    assert max(after) / sum(after) < 0.6 * max(before) / sum(before), (
        "shares: a busy machine's traffic is not steady"
    )
    assert Counter(id_ for id_, _ in results) == dict.fromkeys(decided, 1), "each action has one result"
    done = {id_ for id_, result in results if result["outcome"] == "succeeded"}
    put_back = [str(result["reason"]) for id_, result in results if id_ not in done]
    assert all("still on" in reason for reason in put_back), "Pulsar may give it back"
    assert not any(result["done_before"] for _, result in results)
    targets = Counter(decided[id_]["bundle"] for id_ in done)
    assert set(targets.values()) == {1}, "no bundle is moved or cut twice"
    (cut,) = (each for each in decided.values() if each["type"].endswith("split.v1"))
    _assert_as_predicted(hot, cut)


def _assert_as_predicted(hot: Lab, cut: dict[str, object]) -> None:
    """The bundles are those of the decision, and the topics are where it predicted them."""
    children = cut["children"]
    assert isinstance(children, list)
    predicted = {f"{hot.namespace}/{each['range']}": each["topics_count"] for each in children}
    own = change_events_hash(hot.namespace)
    found = {
        str(bundle): len(hot.admin.topics(bundle)) + bundle.range.contains(own) for bundle in hot.bundles()
    }
    assert found == predicted
    assert sum(found.values()) == HOT_TOPICS + 1, "Pulsar's own topic of the namespace is one, too"


@pytest.mark.slow
def test_a_broker_killed_in_the_middle_is_named_and_the_rest_balanced(
    any_pulsar: LocalPulsar, stage: Stage, warm: Warm, tmp_path: Path
):
    pulsar = any_pulsar
    with controller(pulsar, stage, warm) as running, unbalanced(pulsar) as lab:
        lab.until(lambda: all_at_first(lab), "traffic")
        with trio(lab, stage, running, tmp_path) as three:
            three.until(three.results, "a first move")
            killed = next(iter(three.actions().values()))["destination_broker"]
            left = [broker for broker in pulsar.broker_ids if broker != killed]
            pulsar.kill_broker(1 + pulsar.broker_ids.index(killed))
            try:

                def rest_balanced() -> bool:
                    found: list[float] = []
                    with suppress(AdminError):  # until its session ends, others may redirect to it
                        found = rates(lab, left)
                    return bool(found) and max(found) < 0.62 * sum(found)

                three.until(rest_balanced, "balance of the rest")
                three.wait_for_all_results()
                named = [
                    tick["data"]["failed"].get(killed) for tick in stage.events(stage.topics.input, "tick.v1")
                ]
                rounds = three.rounds()
                decided, results = three.actions(), three.results()
            finally:
                pulsar.start_broker(1 + pulsar.broker_ids.index(killed))
    assert any("check admin_url" in reason for reason in named if reason), "the collector names it"
    assert named[-1] is None, "and asks it no more once Pulsar lists it no more"
    without = {each["round"] for each in rounds if killed not in each["brokers_reporting"]}
    assert without, "rounds went on without it"
    for id_, action in decided.items():
        brokers = {action["source_broker"], action["destination_broker"]}
        assert killed not in brokers or action["round"] not in without, (
            f"{id_} was decided about a dead broker"
        )
    assert Counter(id_ for id_, _ in results) == dict.fromkeys(decided, 1), "each action has one result"
    for id_, result in results:
        moved = decided[id_]
        if result["outcome"] != "succeeded":
            assert killed in (moved["source_broker"], moved["destination_broker"]), result
            assert result["reason"]
    assert set(Counter(each["bundle"] for each in decided.values()).values()) == {1}, "nothing is moved twice"


BUDGET = 300
"""``max_drain_unloads_per_hour_count``."""


def drain_of(three: Trio, broker: str) -> list[tuple[int, dict[str, object]]]:
    """Number of each round with a drain of the broker, and its row."""
    found = []
    for each in three.rounds():
        maintenance = each.get("maintenance")
        drains = maintenance["drains"] if isinstance(maintenance, dict) else []
        found += [(int(str(each["round"])), row) for row in drains if row["name"] == broker]
    return found


def put_back(three: Trio) -> set[str]:
    """Bundles that a finding names as put back at a drained broker."""
    return {
        str(row["subject"])
        for each in three.rounds()
        for row in each["findings"]["heaviest"]  # type: ignore[index]
        if row["kind"] == "put-back"
    }


@pytest.mark.slow
def test_a_drained_broker_ends_empty_until_it_is_released(
    pulsar: LocalPulsar, stage: Stage, warm: Warm, tmp_path: Path
):
    drained = pulsar.broker_ids[0]
    config = stage.directory / "trimtab.toml"
    asked = ("--cluster", CLUSTER, "--broker", drained, "--who", "maria", "--why=a test")
    with controller(pulsar, stage, warm) as running, unbalanced(pulsar) as lab:
        lab.until(lambda: all_at_first(lab), "traffic")
        with trio(lab, stage, running, tmp_path) as three:
            three.until(three.rounds, "a round")
            told = output_of(config, "drain", *asked, "--wait")
            assert f"drain of {drained}: empty" in told
            moves = [each for each in three.actions().values() if each["policy"] == "drain"]
            assert 0 < len(moves) <= BUDGET
            assert drained not in {each["destination_broker"] for each in moves}

            back = lab.bundles()[0]
            before = drain_of(three, drained)[-1][0]
            lab.admin.unload(back, destination=drained)
            three.until(
                lambda: lab.assigned(back) == drained or str(back) in put_back(three), f"{back} put back"
            )

            def gone_again() -> list[int]:
                """Rounds that saw a bundle there, once a later one saw none."""
                seen = [
                    (number, row["bundles_left_count"])
                    for number, row in drain_of(three, drained)
                    if number > before
                ]
                full = [number for number, left in seen if left]
                return full if full and any(number > full[-1] and left == 0 for number, left in seen) else []

            full = three.until(gone_again, "what was put back to leave")
            assert full[-1] - full[0] < 3, full
            assert str(back) in put_back(three)

            released = ("--cluster", CLUSTER, "--who", "maria", "--why=what was drained may move again")
            output_of(config, "policy", "set", *released, "pulsar.guards.bundle_cooldown_s=1")
            output_of(config, "maintenance", "end", *asked)

            def takes_part() -> bool:
                found = rates(lab, pulsar.broker_ids)
                return bool(found) and found[0] > 0

            three.until(takes_part, "traffic at the released broker")
            three.wait_for_all_results()


ASKED = ("--who", "maria", "--why=a test")


def pending(config: Path) -> list[dict[str, Any]]:
    """What `trimtab actions list --pending` says."""
    return list(json.loads(output_of(config, "actions", "list", "--pending", "-o", "json")))


@pytest.mark.slow
def test_proposals_are_approved_and_rejected_by_commands(pulsar: LocalPulsar, warm: Warm, tmp_path: Path):
    stage = PulsarStage.of(Lab(pulsar, bundles_count=1), tmp_path)
    config, topics = tmp_path / "trimtab.toml", stage.topics
    asking = {"controller__approval": "required"}
    with controller(pulsar, stage, warm, **asking) as running, unbalanced(pulsar) as lab:
        lab.until(lambda: all_at_first(lab), "traffic")
        with trio(lab, stage, running, tmp_path) as three:
            three.until(lambda: stage.values(topics.actions_dry_run), "proposals")
            waiting = three.until(lambda: pending(config), "a summary with them")
            approved = waiting[0]
            assert {each["cluster"] for each in waiting} == {CLUSTER}
            proposed = {
                event["id"]: event["data"] for event in map(json.loads, stage.values(topics.actions_dry_run))
            }
            assert proposed.keys() >= {each["id"] for each in waiting}
            assert all(each["dry_run"] and each["proposal"] for each in proposed.values())
            assert stage.values(topics.actions) == []
            assert {lab.owner(bundle) for bundle in lab.bundles()} == {pulsar.broker_ids[0]}

            said = output_of(config, "approve", approved["id"][:8], *ASKED, "--wait")
            found = re.search(r"acted in round \d+, action (\w+)", said)
            assert found is not None, said
            three.until(lambda: dict(three.results()), "a result")
            others = three.until(
                lambda: [each for each in pending(config) if each["id"] != approved["id"]], "another proposal"
            )
            rejected = others[0]
            said = output_of(config, "reject", rejected["id"][:8], *ASKED, "--wait")
            assert "rejected in round" in said
            (done,) = three.results()
            assert done[0] == found[1]
            assert done[1]["outcome"] == "succeeded", done
            assert lab.owner(Bundle.parse(approved["bundle"])) == done[1]["broker"]
            assert lab.owner(Bundle.parse(rejected["bundle"])) == pulsar.broker_ids[0]
            ((id_, action),) = three.actions().items()
            assert (id_, action["proposal_id"]) == (found[1], approved["id"])
            assert (action["dry_run"], action["bundle"]) == (False, approved["bundle"])
            assert not {approved["id"], rejected["id"]} & {each["id"] for each in pending(config)}

    assert_replayed_alike(stage, config)
    shown = output_of(config, "rounds", "show", "--cluster", CLUSTER, "--bundle", approved["bundle"])
    assert f"{approved['bundle']}  at {approved['source']}" in shown
    compared = output_of(config, "backtest", "--policy", "avg-shedder", pulsar.service_url)
    assert "closed loop" in compared
    stage.close()


SETTINGS = """
[pulsar]
bundle_average_samples = 1

[pulsar.rounds]
length_s = 3600
warmup_rounds = 0

[pulsar.usage]
cpu_weight = 0
bandwidth_in_weight = 0
bandwidth_out_weight = 0

[pulsar.capacity]
messages_per_s = 100

[pulsar.avg_shedder]
low_hit_count = 1
high_hit_count = 1
min_unload_messages_per_s = 5
"""
"""One sweep is one round, and decides."""


def rates_of(admin_of: Lab, owners: Mapping[str, str]) -> dict[str, float] | None:
    """Messages/s of each of the bundles, once it is in the report of its owner and of no other broker."""
    found: dict[str, list[tuple[str, float]]] = {bundle: [] for bundle in owners}
    for broker in admin_of.pulsar.broker_ids:
        for bundle, load in (read_report(admin_of.admin.load_report(broker)).lastStats or {}).items():
            if bundle in found:
                found[bundle].append((broker, load.messages_per_s))
    if any([broker for broker, _ in found[bundle]] != [owner] for bundle, owner in owners.items()):
        return None
    return {bundle: rate for bundle, ((_, rate),) in found.items()}


def decided(config: Path, swept: bytes) -> list[dict[str, Any]]:
    """Outputs of the round that a sweep makes."""
    outputs = command("replay", "--config", str(config), given=swept).stdout
    return [json.loads(line) for line in outputs.splitlines()]


def sweep(config: Path) -> bytes:
    return command("collect", "pulsar", CLUSTER, "--config", str(config), "--once", "--stdout").stdout_bytes


def outcome_of(bundle: object, outputs: list[dict[str, Any]]) -> tuple[str, str]:
    """What a round said of a candidate, and why."""
    (summary,) = (each["data"] for each in outputs if each["type"] == "trimtab.round.v1")
    (found,) = (each for each in summary["candidates"]["heaviest"] if each["bundle"] == str(bundle))
    return found["outcome"], found["detail"]


def unloads(outputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each["data"] for each in outputs if each["type"] == "trimtab.action.unload.v1"]


def test_what_pulsar_keeps_apart_is_not_put_together(pulsar: LocalPulsar, tmp_path: Path):
    """The only bundle that fits is in a group whose other namespace is at the idlest broker."""
    busy, fellow, big, other = (Lab(pulsar, bundles_count=1) for _ in range(4))
    (of_busy,), (of_fellow,), (of_big,), (of_other,) = (lab.bundles() for lab in (busy, fellow, big, other))
    crowded, idle, third = pulsar.broker_ids
    for lab, broker in ((busy, crowded), (fellow, idle), (big, crowded), (other, third)):
        gather(lab, broker)
    group = f"g-{busy.namespace.partition('/')[2]}"
    for lab in (busy, fellow):
        lab.post(f"namespaces/{lab.namespace}/antiAffinity", group)
    owners = {str(of_busy): crowded, str(of_fellow): idle, str(of_big): crowded, str(of_other): third}
    topics = [
        busy.topic_in(of_busy),
        *(big.topic_in(of_big, number=number) for number in range(3)),
        *(other.topic_in(of_other, number=number) for number in range(2)),
    ]
    config = tmp_path / "trimtab.toml"
    config.write_text(f'{SETTINGS}\n[targets."{CLUSTER}".pulsar]\nadmin_url = "{pulsar.admin_url}"\n')

    def reported() -> bool:
        found = rates_of(busy, owners)
        return found is not None and found[str(of_busy)] > 10 and found[str(of_other)] > 20

    with busy.traffic(topics):
        lab.until(reported, "the traffic in the reports")
        together = sweep(config)
        for lab in (busy, fellow):
            lab.delete(f"namespaces/{lab.namespace}/antiAffinity")
        apart = sweep(config)

    (facts,) = (
        each["data"] for each in map(json.loads, together.splitlines()) if each["type"].endswith("cluster.v1")
    )
    assert facts["anti_affinity_groups"][group] == sorted([busy.namespace, fellow.namespace])
    outputs = decided(config, together)
    assert outcome_of(of_busy, outputs) == (
        "anti-affinity",
        f"{idle} owns bundles of 1 other namespaces of anti-affinity group {group}, {crowded} of 0",
    )
    assert unloads(outputs) == []

    (moved,) = unloads(decided(config, apart))
    route = (moved["bundle"], moved["source_broker"], moved["destination_broker"])
    assert route == (str(of_busy), crowded, idle)
