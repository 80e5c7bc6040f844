"""The live proof: three real processes beside a real cluster with real traffic, unbalanced at first.

Measured by the brokers' own reports, before and after. Brokers on one host report the host's CPU and bandwidth, so they
are balanced by declared capacity.
"""

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from deploy.local.pulsar import LocalPulsar
from streaming.collect.reports import read_report
from streaming.pulsar_admin.bundles import topic_hash
from tests.live.driving import TRIMTAB, Child, Warm, until
from tests.live.pulsar.lab import CLUSTER, Lab
from tests.live.stage import Stage

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.timeout(600)]  # minutes on an idle machine

SETTINGS = """
[pulsar]
bundle_average_samples = 1

[pulsar.rounds]
length_s = 8
lateness_s = 1
warmup_rounds = 1
max_report_age_s = 30

[pulsar.usage]
cpu_weight = 0
bandwidth_in_weight = 0
bandwidth_out_weight = 0

[pulsar.capacity]
messages_per_s = 500

[pulsar.avg_shedder]
low_hit_count = 2
high_hit_count = 2
min_unload_messages_per_s = 10

[pulsar.split]
enabled = true
max_messages_per_s = 150
hit_count = 1
"""
BUNDLES, HOT_TOPICS = 8, 6


def rates(lab: Lab) -> list[float]:
    """Messages/s into the lab's bundles at each broker, as the brokers report them; empty while one is reported twice.

    After a move a bundle is in both brokers' reports for about one stats period.
    """
    reports = [read_report(lab.admin.load_report(broker)).lastStats or {} for broker in lab.pulsar.broker_ids]
    mine = [{name: load for name, load in each.items() if lab.namespace in name} for each in reports]
    if sum(map(len, mine)) != BUNDLES:
        return []
    return [sum(load.messages_per_s for load in each.values()) for each in mine]


def is_balanced(loads: Sequence[float]) -> bool:
    """Every broker carries some of it, none as much as half."""
    return bool(loads) and min(loads) > 0 and max(loads) < sum(loads) / 2


def gather(lab: Lab, broker: str) -> None:
    """Have one broker own every bundle."""
    for bundle in lab.bundles():
        owner = lab.assigned(bundle)
        if owner != broker:
            lab.admin.unload(bundle, destination=broker)
            until(
                lambda each=bundle: lab.assigned(each) == broker,
                what=f"{bundle} at {broker}",
                running=[lab.pulsar],
            )


def actions(stage: Stage) -> dict[str, dict[str, object]]:
    """`data` of every action with its type, by id."""
    events = [json.loads(value) for value in stage.values(stage.topics.actions)]
    return {event["id"]: {"type": event["type"], **event["data"]} for event in events}


def results(stage: Stage) -> list[tuple[str, str]]:
    """Id and outcome of every result, in order."""
    events = [json.loads(value) for value in stage.values(stage.topics.input)]
    return [(each["subject"], each["data"]["outcome"]) for each in events if "action-result" in each["type"]]


def test_an_unbalanced_cluster_is_balanced_a_hot_bundle_is_cut_and_nothing_is_done_twice(
    pulsar: LocalPulsar, stage: Stage, warm: Warm, tmp_path: Path
) -> None:
    lab, hot = Lab(pulsar, bundles_count=BUNDLES), Lab(pulsar, bundles_count=1)
    gather(lab, pulsar.broker_ids[0])
    config = stage.settings(
        base=f'{SETTINGS}\n[targets."{CLUSTER}".pulsar]\nadmin_url = "{pulsar.admin_url}"\n'
    )
    (bundle,) = hot.bundles()
    hot_topics = [hot.topic_in(bundle, number=number) for number in range(HOT_TOPICS)]
    with ExitStack() as stack:
        stack.enter_context(lab.traffic([lab.topic_in(each) for each in lab.bundles()]))
        before = until(
            lambda: (found := rates(lab)) and sum(found) > BUNDLES * 30 and found,
            what="traffic",
            running=[pulsar],
        )
        assert sorted(before)[:2] == [0, 0], "all of it at one broker"
        running = stack.enter_context(warm.start("run", "--config", str(config)))
        # Rounds that queued up before it starts would all be decided on loads that no move has changed yet.
        until(lambda: "has epoch" in running.said, what="the controller", running=[pulsar, running])
        children = []
        for name in ("collect", "execute"):
            child = Child(
                (*TRIMTAB, name, "pulsar", CLUSTER, "--config", str(config)), tmp_path / f"{name}.log"
            )
            stack.callback(child.close)
            children.append(child)
        alive = [pulsar, running, *children]
        after = until(
            lambda: (found := rates(lab)) and is_balanced(found) and found, what="balance", running=alive
        )
        stack.enter_context(hot.traffic(hot_topics))
        until(lambda: len(hot.bundles()) > 1, what="a cut", running=alive)
        until(
            lambda: {id_ for id_, _ in results(stage)} >= set(actions(stage)), what="results", running=alive
        )
        for child in children:
            assert child.terminate() == 0
        assert running.terminate() == 0
    assert max(after) < 0.6 * max(before)
    decided = actions(stage)
    told = Counter(id_ for id_, _ in results(stage))
    assert set(told) == set(decided)
    assert set(told.values()) == {1}, "each action has one result"
    assert {outcome for _, outcome in results(stage)} == {"succeeded"}
    targets = Counter(each["bundle"] for each in decided.values())
    assert set(targets.values()) == {1}, "no bundle is moved or cut twice"
    (cut,) = (each for each in decided.values() if each["type"].endswith("split.v1"))
    _assert_as_predicted(hot, cut)


def _assert_as_predicted(hot: Lab, cut: dict[str, object]) -> None:
    """The bundles are those of the decision, and the topics are where it said they would be."""
    children = cut["children"]
    assert isinstance(children, list)
    predicted = {f"{hot.namespace}/{each['range']}": each["topics_count"] for each in children}
    own = topic_hash(f"persistent://{hot.namespace}/__change_events")
    found = {str(bundle): len(hot.admin.topics(bundle)) + bundle.holds(own) for bundle in hot.bundles()}
    assert found == predicted
    assert sum(found.values()) == HOT_TOPICS + 1, "Pulsar's own topic of the namespace is one, too"
