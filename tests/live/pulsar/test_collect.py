"""The collector on a real cluster with real traffic: what it writes is what the brokers say, and can be replayed."""

import json
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from pulsar import ConsumerType, MessageId

from deploy.local.pulsar import LocalPulsar
from policies.splitting.plan import SplitSettings
from policies.splitting.ranges import position_of
from state.events import ClusterFacts, LoadReport, Tick, TopicStats
from state.settings import PulsarSettings
from streaming.collector.metrics import CollectorMetrics
from streaming.collector.pulsar import PulsarCollector, StartRefused
from streaming.contract.decode import decode
from streaming.contract.messages import (
    LoadReportMessage,
    PulsarClusterMessage,
    TickMessage,
    TopicStatsMessage,
    type_of,
)
from streaming.settings import PulsarTarget, Settings
from tests.support.processes import command, until
from tests.support.pulsar import CLUSTER, Lab, PulsarStage, connected, other_than, section_of, target_of
from tests.support.pulsar_programs import Commander, Heard, collector
from tests.support.stage import Stage

pytestmark = pytest.mark.live


SESSIONS = Settings(pulsar=PulsarSettings(split=SplitSettings(max_sessions_count=8)))
"""With which a bundle with four clients has its topics reported."""


def test_reports_and_statistics_of_real_traffic_can_be_decoded_by_the_controller(pulsar: LocalPulsar):
    lab, heard = Lab(pulsar), Heard()
    bundle = lab.bundles()[1]
    topic = lab.topic_in(bundle)
    collecting = collector(lab.target, heard)
    with lab.traffic([topic]):

        def measured() -> bool:
            assert collecting.sweep()
            stats = heard.of(TopicStatsMessage).values()
            return any(each.get(str(bundle), {}).get(topic, {}).get("msgRateIn", 0) > 10 for each in stats)

        lab.until(measured, f"statistics of {topic}")
    collecting.join_facts()
    collecting.close()

    assert position_of(topic) in range(bundle.range.lower, bundle.range.upper)
    owner = lab.owner(bundle)
    reports = heard.of(LoadReportMessage)
    assert set(reports) == set(pulsar.broker_ids)
    assert reports[owner]["lastStats"][str(bundle)]["msgRateIn"] > 10
    assert reports[owner]["loadReportType"] == "LocalBrokerData", "verbatim: also what nobody reads"
    assert heard.of(TickMessage) == {"tick": {"asked": sorted(pulsar.broker_ids), "failed": {}}}
    kinds = {type(decode(value, key=CLUSTER)[1]) for value in heard.values}
    assert kinds == {LoadReport, TopicStats, Tick, ClusterFacts}


def test_clients_are_counted_by_topic_as_the_broker_counts_them_by_bundle(pulsar: LocalPulsar):
    lab, heard = Lab(pulsar), Heard()
    bundle = lab.bundles()[1]
    topic = lab.topic_in(bundle)
    client, collecting = connected(pulsar), collector(lab.target, heard, settings=SESSIONS)
    try:
        _producers = [client.create_producer(topic) for _ in range(2)]
        _consumers = [
            client.subscribe(topic, f"s{number % 3}", consumer_type=ConsumerType.Shared)
            for number in range(4)
        ]
        _reader = client.create_reader(topic, MessageId.latest)

        def counted() -> bool:
            assert collecting.sweep()
            found = [
                each.get(str(bundle), {}).get(topic, {}) for each in heard.of(TopicStatsMessage).values()
            ]
            return {(each.get("producers"), each.get("consumers")) for each in found if each} == {(2, 5)}

        lab.until(counted, f"clients of {topic}")
        stats = heard.of(LoadReportMessage)[lab.owner(bundle)]["lastStats"][str(bundle)]
        assert (stats["producerCount"], stats["consumerCount"]) == (2, 5)
    finally:
        client.close()
        collecting.close()


def test_it_says_who_else_balances_and_what_must_stay_where(pulsar: LocalPulsar):
    lab, heard = Lab(pulsar), Heard()
    lab.post(f"namespaces/{lab.namespace}/antiAffinity", "pair")
    lab.post("brokers/configuration/loadBalancerAutoBundleSplitEnabled/true")
    policy = {
        "namespaces": [f"{lab.namespace}.*"],
        "primary": ["10[.].*"],
        "secondary": [],
        "auto_failover_policy": {
            "policy_type": "min_available",
            "parameters": {"min_limit": "1", "usage_threshold": "80"},
        },
    }
    lab.post(f"clusters/{pulsar.cluster}/namespaceIsolationPolicies/p1", policy)
    lab.post(f"clusters/{pulsar.cluster}/failureDomains/rack-1", {"brokers": pulsar.broker_ids[:2]})
    try:
        until(
            lambda: all(lab.admin.configuration(each).splits for each in pulsar.broker_ids),
            what="the setting",
        )
        collecting = collector(lab.target, heard)
        assert collecting.sweep()
        collecting.join_facts()
        collecting.close()
    finally:
        lab.delete(f"clusters/{pulsar.cluster}/namespaceIsolationPolicies/p1")
        lab.delete(f"clusters/{pulsar.cluster}/failureDomains/rack-1")
        lab.delete("brokers/configuration/loadBalancerAutoBundleSplitEnabled")
    facts = heard.of(PulsarClusterMessage)["cluster"]
    groups = facts.pop("anti_affinity_groups")
    assert groups["pair"] == [lab.namespace], "other tests' groups may be there, too"
    broker = {
        "load_manager": "ModularLoadManagerImpl",
        "shedding_enabled": False,
        "auto_split_enabled": True,
        "split_algorithms": [
            "flow_or_qps_equally_divide",
            "range_equally_divide",
            "specified_positions_divide",
            "topic_count_equally_divide",
        ],
    }
    assert facts == {
        "pulsar_cluster": pulsar.cluster,
        "failure_domains": {"rack-1": sorted(pulsar.broker_ids[:2])},
        "brokers": dict.fromkeys(sorted(pulsar.broker_ids), broker),
        "isolation_policies": {
            "p1": {"namespaces": policy["namespaces"], "primary": policy["primary"], "secondary": []}
        },
        "trimtab_topics": {},
    }


def test_it_names_the_bundles_of_trimtabs_trimtab_topics_and_their_traffic(
    pulsar: LocalPulsar, tmp_path: Path
):
    lab, heard = Lab(pulsar), Heard()
    stage = PulsarStage.of(lab, tmp_path)
    own = stage.full_name(stage.topics.input)
    others = lab.topic_in(next(each for each in lab.bundles() if each.range.contains(position_of(own))))
    often = replace(lab.target, cluster_interval_s=1.0)
    collecting = collector(often, heard, settings=stage.loaded())

    def named() -> object:
        assert collecting.sweep()
        collecting.join_facts()
        found = heard.of(PulsarClusterMessage)["cluster"]["trimtab_topics"]
        assert isinstance(found, dict)
        rates = {topic: each for topics in found.values() for topic, each in topics.items()}
        return found if rates.get(own, {}).get("msgRateIn", 0) > 10 else None

    with lab.traffic([own, others]):
        found = lab.until(named, f"what {own} carries")
    collecting.close()
    stage.close()
    assert isinstance(found, dict)
    (bundle,) = [name for name, topics in found.items() if own in topics]
    low, high = (int(each, 16) for each in bundle.rpartition("/")[2].split("_"))
    assert low <= position_of(own) <= high
    assert others not in found[bundle], "somebody else's, in the same bundle"


def test_a_sweep_to_standard_output_can_be_replayed_without_any_kafka(pulsar: LocalPulsar, tmp_path: Path):
    config = tmp_path / "trimtab.toml"
    config.write_text(section_of(target_of(pulsar)))
    common, brokers = ("--config", str(config)), sorted(pulsar.broker_ids)
    swept = command("collect", "pulsar", CLUSTER, *common, "--once", "--stdout").stdout_bytes
    (line,) = command("replay", *common, "--only", "rounds", given=swept).stdout.splitlines()
    summary = json.loads(line)["data"]
    assert (summary["brokers_reporting"], summary["brokers_asked"]) == (brokers, brokers)


@pytest.mark.parametrize(
    ("admin_url", "message"),
    [("http://127.0.0.1:1", "check admin_url"), ("{kafka}", "admin_url"), ("{pulsar}/", None)],
)
def test_a_wrong_address_is_refused_at_the_start(
    pulsar: LocalPulsar, stage: Stage, admin_url: str, message: str | None
):
    url = admin_url.format(kafka=f"http://{stage.bootstrap}", pulsar=pulsar.admin_url)
    target = PulsarTarget(admin_url=url, timeout_s=3)
    if message is None:
        collector(target, Heard()).close()
        return
    with pytest.raises(StartRefused, match=message):
        collector(target, Heard())


def test_through_kafka_the_reports_arrive_keyed_by_the_cluster(pulsar: LocalPulsar, stage: Stage):
    settings = stage.settings(base=section_of(target_of(pulsar)))
    command("collect", "pulsar", CLUSTER, "--config", str(settings), "--once")
    records = stage.read(stage.topics.input)
    types = [json.loads(record.value)["type"] for record in records]
    assert types.count(type_of(LoadReportMessage)) == len(pulsar.broker_ids)
    assert {record.key for record in records} == {CLUSTER.encode()}


def test_a_missing_topic_and_a_missing_target_are_refused_with_the_remedy(pulsar: LocalPulsar, stage: Stage):
    target = section_of(target_of(pulsar))
    no_topic = stage.settings(base=target, file="a.toml", topics__input="nowhere")
    no_target = stage.settings(base="", file="b.toml")
    for settings, code, message in (
        (no_topic, 5, "trimtab topics create"),
        (no_target, 2, f'[targets."{CLUSTER}".pulsar]'),
    ):
        asked = ("collect", "pulsar", CLUSTER, "--config", str(settings), "--once")
        assert message in command(*asked, code=code).stderr


def test_a_used_bundle_that_nobody_owns_is_a_finding_until_a_lookup(pulsar: LocalPulsar, tmp_path: Path):
    lab, heard, ahead_s = Lab(pulsar), Heard(), [0.0]
    bundle, name = lab.bundles()[1], str(lab.bundles()[1])
    collecting = PulsarCollector(
        Settings(),
        CollectorMetrics(CLUSTER),
        cluster=CLUSTER,
        target=lab.target,
        sink=heard,
        clock_s=lambda: time.time() + ahead_s[0],
    )

    def used() -> bool:
        assert collecting.sweep()
        loads = (report["lastStats"].get(name) for report in heard.of(LoadReportMessage).values())
        return any(load and load["msgRateIn"] > 0 for load in loads)

    def unowned() -> object:
        ahead_s[0] += 35.0
        assert collecting.sweep()
        return heard.of(TickMessage)["tick"].get("unowned")

    topic = lab.topic_in(bundle)
    with lab.traffic([topic]):
        lab.until(used, f"traffic of {name} in a report")
    lab.admin.unload(bundle, destination=None)
    lab.until(lambda: lab.owner(bundle) is None, f"no owner of {name}")
    found = lab.until(unowned, f"a tick that names {name}")
    assert isinstance(found, dict)
    assert list(found) == [name]
    assert lab.owner(bundle) is None, "to look for owners assigns nothing"
    assert ("unowned", name) in _findings(heard, tmp_path), "beside what a busy machine shows"

    lab.admin.lookup(topic)
    lab.until(lambda: lab.owner(bundle), f"an owner of {name}")
    lab.until(lambda: not unowned(), "a tick that names none")
    collecting.close()


def _findings(heard: Heard, folder: Path) -> list[tuple[str, str]]:
    """Those of the last round of a controller that gets these events."""
    config = folder / "trimtab.toml"
    config.write_text("[pulsar.rounds]\nmax_ahead_s = 86400\n")
    rounds = ("replay", "--config", str(config), "--only", "rounds")
    last = json.loads(command(*rounds, given=b"\n".join(heard.values)).stdout.splitlines()[-1])
    return [(each["kind"], each["subject"]) for each in last["data"]["findings"]["heaviest"]]


@pytest.mark.slow
def test_a_killed_broker_fails_by_name_and_the_others_are_read(pulsar: LocalPulsar, stage: Stage):
    lab, heard, commander = Lab(pulsar), Heard(), Commander(stage, pulsar)
    *rest, killed = pulsar.broker_ids
    bundle = lab.bundles()[0]
    if lab.assigned(bundle) != killed:
        lab.admin.unload(bundle, destination=killed)
        lab.until(lambda: lab.assigned(bundle) == killed, f"{bundle} at {killed}")
    collecting = collector(lab.target, heard)
    action = commander.unload(bundle, owner=killed, to=other_than(lab, killed))
    with ExitStack() as stack:
        executing = commander.start(stack)
        pulsar.kill_broker(3)
        stack.callback(pulsar.start_broker, 3)
        assert collecting.sweep()
        assert set(heard.of(LoadReportMessage)) == set(rest)
        tick = heard.of(TickMessage)["tick"]
        assert tick["asked"] == sorted(pulsar.broker_ids), "ZooKeeper still lists it"
        assert "check admin_url" in tick["failed"][killed]

        executing.run(once=True)
        result = commander.results()[action]
        if result["outcome"] == "failed":
            assert "check admin_url" in str(result["reason"])
        else:  # its session in ZooKeeper has ended since
            assert "nobody owns it" in str(result["reason"]), result

        def gone() -> bool:
            assert collecting.sweep()
            return heard.of(TickMessage)["tick"] == {"asked": sorted(rest), "failed": {}}

        lab.until(gone, "the end of the broker's session")
    assert collecting.sweep()
    assert set(heard.of(LoadReportMessage)) == set(pulsar.broker_ids), "and it is read again at once"
    collecting.close()
