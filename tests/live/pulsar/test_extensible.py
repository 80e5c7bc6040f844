"""A real cluster with Pulsar's extensible load manager: what its brokers publish is collected, decided on and acted on.

The tests of a version share a cluster; the last of them kills a broker.
"""

import json
import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deploy.local.pulsar import NEWEST_PULSAR_LOCK, OLDEST_PULSAR_LOCK, PULSAR_LOCK, LocalPulsar
from deploy.local.pulsar_settings import LoadManager
from policies.splitting.ranges import Bundle, BundleRange
from state.events import BrokerLoad
from streaming.contract.decode import decode
from streaming.contract.messages import (
    BrokerLoadMessage,
    LoadReportMessage,
    PulsarClusterMessage,
    TickMessage,
    TopicStatsMessage,
)
from streaming.pulsar.load_data import LOAD_TOPIC
from streaming.settings import PulsarTarget, load
from tests.support.processes import Warm
from tests.support.pulsar import CLUSTER, Lab, other_than, target_of
from tests.support.pulsar_programs import BUNDLES, Commander, Heard, collector, controller, gather, trio
from tests.support.secure_pulsar import SUPER_USER, SecurePulsar
from tests.support.stage import Stage

pytestmark = pytest.mark.live


QUICK = {"pulsar.rounds.length_s": 8, "pulsar.rounds.lateness_s": 1}
"""A sweep waits up to two seconds for a broker to publish anew."""
IDLER = {number: {"loadBalancerCPUResourceWeight": 0.1} for number in (2, 3)}
"""CPU, the only usage that these brokers publish, is the host's: without weights chance would choose which of them is the busiest."""


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(OLDEST_PULSAR_LOCK, id="3.0"),
        pytest.param(PULSAR_LOCK, id="4.0"),
        pytest.param(NEWEST_PULSAR_LOCK, id="4.2"),
    ],
)
def extensible(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalPulsar]:
    place = tmp_path_factory.mktemp("extensible")
    with LocalPulsar(place, load_manager="extensible", extra_of=IDLER, lock=request.param) as running:
        yield running


def collecting_from(lab: Lab, heard: Heard, **target: Any) -> Any:
    settings = load(file=None, flags=QUICK, environ={}).settings
    return collector(PulsarTarget(admin_url=lab.pulsar.admin_url, **target), heard, settings=settings)


def published_bundles(data: Mapping[str, Any]) -> dict[str, float]:
    """Messages/s of the bundles that a broker published."""
    return {each["bundleName"]: each["stats"]["msgRateIn"] for each in data["topBundlesLoadData"]}


@pytest.mark.slow
def test_what_brokers_publish_is_collected_and_actions_do_what_they_say(
    extensible: LocalPulsar, stage: Stage
):
    lab, heard, commander = Lab(extensible), Heard(), Commander(stage, extensible)
    moved, cut, *_ = lab.bundles()
    owner, cutter = lab.assigned(moved), lab.assigned(cut)
    destination, topic = other_than(lab, owner), lab.topic_in(moved)
    rack = extensible.broker_ids[:2]
    lab.post(f"clusters/{extensible.cluster}/failureDomains/rack-1", {"brokers": rack})
    collecting = collecting_from(lab, heard, topic_stats="all")

    def published_at(broker: str) -> bool:
        assert collecting.sweep()
        found = heard.of(BrokerLoadMessage)
        is_complete = heard.of(TickMessage)["tick"]["failed"] == {} and len(found) == len(
            extensible.broker_ids
        )
        return (
            is_complete
            and published_bundles(found.get(broker, {"topBundlesLoadData": []})).get(str(moved), 0) > 10
        )

    with lab.traffic([topic]):
        lab.until(lambda: published_at(owner), f"{moved} published by {owner}")
        found = heard.of(BrokerLoadMessage)[owner]
        middle = (cut.range.lower + cut.range.upper) // 2
        unload = commander.unload(moved, owner=owner, to=destination)
        split = commander.split(cut, owner=cutter, at=[middle])
        commander.execute()
        results = commander.results()
        assert lab.owner(moved) == destination
        lab.until(lambda: published_at(destination), f"{moved} published by {destination}")
    collecting.join_facts()
    collecting.close()

    assert str(moved) in found["bundles"], "all that it owns, published or not"
    assert found["weightedMaxEMA"] >= 0
    assert any(topic in each.get(str(moved), {}) for each in heard.of(TopicStatsMessage).values())
    events = [decode(value, key=CLUSTER)[1] for value in heard.values]
    loads = [each for each in events if isinstance(each, BrokerLoad)]
    assert {each.broker for each in loads} == set(extensible.broker_ids)
    assert all(each.report.published is not None for each in loads)
    facts: Any = heard.of(PulsarClusterMessage)["cluster"]
    managers = {each["load_manager"] for each in facts["brokers"].values()}
    assert managers == {"ExtensibleLoadManagerImpl"}
    assert facts["failure_domains"] == {"rack-1": sorted(rack)}
    assert (results[unload]["outcome"], results[unload]["broker"]) == ("succeeded", destination)
    assert results[split]["outcome"] == "succeeded", results[split]
    assert middle in lab.admin.boundaries(lab.namespace)


@pytest.mark.slow
def test_several_cuts_are_made_one_after_the_other(extensible: LocalPulsar, stage: Stage):
    lab, commander = Lab(extensible), Commander(stage, extensible)
    cut = lab.bundles()[0]
    middle = (cut.range.lower + cut.range.upper) // 2
    later = (middle + cut.range.upper) // 2
    for low, high in (
        (cut.range.lower, middle),
        (middle, later),
        (later, cut.range.upper),
    ):  # Pulsar cuts no bundle with fewer than two topics
        topic = lab.topic_in(Bundle(cut.namespace, BundleRange(low, high))).removeprefix("persistent://")
        lab.put(f"persistent/{topic}", known=(409,))
    split = commander.split(cut, owner=lab.assigned(cut), at=[middle, later])
    commander.execute()
    result = commander.results()[split]
    assert result["outcome"] == "succeeded", result
    assert {middle, later} <= set(lab.admin.boundaries(lab.namespace))


def loads_of(heard: Heard, lab: Lab) -> list[float]:
    """Messages/s of the lab's bundles that each broker published last."""
    found = heard.of(BrokerLoadMessage)
    return [
        sum(
            rate
            for name, rate in published_bundles(found.get(broker, {"topBundlesLoadData": []})).items()
            if lab.namespace in name
        )
        for broker in lab.pulsar.broker_ids
    ]


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["transfer-shedder", "fleet-planner"])
def test_an_unbalanced_cluster_is_balanced(
    extensible: LocalPulsar, stage: Stage, warm: Warm, tmp_path: Path, policy: str
):
    lab, heard = Lab(extensible, bundles_count=BUNDLES), Heard()
    gather(lab, extensible.broker_ids[0])
    with (
        controller(extensible, stage, warm, policy=policy, more=EAGER) as running,
        lab.traffic([lab.topic_in(each) for each in lab.bundles()]),
    ):
        collecting = collecting_from(lab, heard)

        def shares(most: float) -> bool:
            assert collecting.sweep()
            found = loads_of(heard, lab)
            return sum(found) > 20 * BUNDLES and max(found) <= most * sum(found)

        lab.until(lambda: shares(1.0), "traffic")
        with trio(lab, stage, running, tmp_path) as three:
            three.until(lambda: shares(0.7), "balance")
            three.wait_for_all_results()
            decided, results, rounds = three.actions(), three.results(), three.rounds()
        collecting.close()
    assert {each["policy"] for each in decided.values() if "unload" in str(each["type"])} == {policy}
    assert Counter(id_ for id_, _ in results) == dict.fromkeys(decided, 1), "each action has one result"
    assert all(result["outcome"] == "succeeded" for _, result in results), results
    assert all(result["reason"] is None for _, result in results), "a destination holds on this load manager"
    assert any(each["outcome"] == "decided" for each in rounds)


EAGER = """
[pulsar.transfer_shedder]
hit_count = 0
shedding_delay_s = 0
target_std_ratio = 1.0
"""


@pytest.mark.slow
def test_a_killed_broker_fails_by_name_and_the_others_are_read_until_it_is_back(extensible: LocalPulsar):
    lab, heard = Lab(extensible), Heard()
    collecting = collecting_from(lab, heard)

    def all_read() -> bool:
        heard.values.clear()
        assert collecting.sweep()
        return set(heard.of(BrokerLoadMessage)) == set(extensible.broker_ids)

    lab.until(all_read, "every broker's load")
    killed = lab.admin.service_url("non-persistent://pulsar/system/loadbalancer-broker-load-data")
    number = next(each for each, (port, _) in extensible._ports.items() if killed.endswith(f":{port}"))
    dead = extensible.broker_ids[number - 1]
    with ExitStack() as stack:
        extensible.kill_broker(number)  # the one that has what the others publish
        stack.callback(extensible.start_broker, number)

        def others_read() -> bool:
            heard.values.clear()
            return collecting.sweep() and set(heard.of(BrokerLoadMessage)) == set(extensible.broker_ids) - {
                dead
            }

        lab.until(others_read, "the others' load")

        def gone() -> bool:
            heard.values.clear()
            return collecting.sweep() and dead not in heard.of(TickMessage)["tick"]["asked"]

        lab.until(gone, "the end of the broker's session")
        assert dead not in json.dumps(heard.of(BrokerLoadMessage).get(dead, {}))
    lab.until(all_read, "every broker's load again")
    collecting.close()


@pytest.mark.slow
def test_a_switch_of_load_managers_is_said_and_collected_through(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.WARNING)
    with LocalPulsar(tmp_path, brokers=2) as pulsar:
        lab, heard = Lab(pulsar), Heard()
        collecting = collecting_from(lab, heard)

        def all_read_as(kind: type[BrokerLoadMessage | LoadReportMessage]) -> bool:
            heard.values.clear()
            return collecting.sweep() and set(heard.of(kind)) == set(pulsar.broker_ids)

        def switch(manager: LoadManager) -> None:
            pulsar.use_load_manager(manager)
            for number in (1, 2):
                pulsar.stop_broker(number)
                pulsar.start_broker(number)

        lab.until(lambda: all_read_as(LoadReportMessage), "reports")
        switch("extensible")
        lab.until(lambda: all_read_as(BrokerLoadMessage), "published loads")
        switch("modular")
        lab.until(lambda: all_read_as(LoadReportMessage), "reports again")
        collecting.close()
    said = [each.getMessage() for each in caplog.records if "has changed" in each.getMessage()]
    for broker in pulsar.broker_ids:
        assert any(f"{broker} runs ExtensibleLoadManagerImpl now" in each for each in said)
        assert any(f"{broker} runs ModularLoadManagerImpl now" in each for each in said)


VARIABLE = "TRIMTAB_TEST_PULSAR_TOKEN"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecurePulsar]:
    with SecurePulsar(tmp_path_factory.mktemp("secured"), load_manager="extensible") as running:
        yield running


@pytest.mark.slow
@pytest.mark.parametrize("given_by", ["file", "variable"])
def test_what_a_broker_publishes_is_read_over_tls(
    secured: SecurePulsar, monkeypatch: pytest.MonkeyPatch, given_by: str
):
    lab, heard, target = Lab(secured), Heard(), target_of(secured)
    if given_by == "variable":
        monkeypatch.setenv(VARIABLE, secured.token_of(SUPER_USER))
        target = replace(target, token_file=None, token_env=VARIABLE)
    assert lab.admin.service_url(LOAD_TOPIC) == secured.secure_service_url
    bundle = lab.bundles()[0]
    owner = lab.assigned(bundle)
    collecting = collector(target, heard)

    def is_published() -> bool:
        assert collecting.sweep()
        found = heard.of(BrokerLoadMessage).get(owner, {"topBundlesLoadData": []})
        return str(bundle) in {each["bundleName"] for each in found["topBundlesLoadData"]}  # type: ignore[attr-defined]

    with lab.traffic([lab.topic_in(bundle)]):
        lab.until(is_published, f"{bundle} published by {owner}")
    collecting.close()
    assert str(bundle) in heard.of(BrokerLoadMessage)[owner]["bundles"]  # type: ignore[operator]
    assert heard.of(TickMessage)["tick"] == {"asked": [owner], "failed": {}}
