"""The demo on a real Pulsar: balances a real cluster, shows what its brokers report, and leaves nothing behind."""

import re
import sys
from pathlib import Path

import msgspec
import pytest

from deploy.local.demo.shop import RATES_MESSAGES_PER_S, TOTAL_MESSAGES_PER_S
from deploy.local.demo.topics import Loads
from deploy.local.demo.worlds import PULSAR_SETTINGS
from streaming.contract.messages import TickData
from streaming.settings import load
from tests.live.terminal import assert_ctrl_c_ends, output_without_terminal

STOP_S_MAX = 60.0
"""Three processes of trimtab, then brokers, bookie and ZooKeeper in turn."""


def report(rate: float, bundles: list[str]) -> bytes:
    return msgspec.json.encode(
        {
            "webServiceUrl": "http://127.0.0.1:1",
            "pulsarServiceUrl": "pulsar://127.0.0.1:2",
            "lastUpdate": 1,
            "numBundles": len(bundles),
            "msgRateIn": rate,
            "bundles": bundles,
        }
    )


def test_a_sweep_shows_the_brokers_that_answered_with_their_own_numbers():
    loads = Loads(capacity_messages_per_s=400.0)
    assert loads.tick(TickData(asked=["b1", "b2"]), 5) is None, "nobody has reported yet"
    loads.report("b1", report(100.0, ["t/n/0x0_0x1", "pulsar/lab/b1:8080/0x00000000_0xffffffff"]))
    loads.report("b2", report(300.0, ["t/n/0x0_0x1", "t/n/0x1_0x2"]))
    both = loads.tick(TickData(asked=["b1", "b2"]), 6)
    assert both is not None
    assert [(each.broker, each.usage_points, each.bundles_count) for each in both.brokers] == [
        ("b1", 25.0, 1),
        ("b2", 75.0, 2),
    ]
    assert both.bundles_count == 2, "one that moves is one"
    one = loads.tick(TickData(asked=["b1", "b2"], failed={"b1": "gone"}), 7)
    assert one is not None
    assert [each.broker for each in one.brokers] == ["b2"]


def test_the_traffic_is_too_much_for_one_broker_to_be_calm_and_a_bundle_of_it_too_hot() -> None:
    pulsar = load(file=PULSAR_SETTINGS, flags={}, environ={}).settings.pulsar
    capacity = pulsar.capacity.messages_per_s
    assert capacity is not None
    assert 100 * TOTAL_MESSAGES_PER_S / capacity > 2 * pulsar.fleet_planner.acceptable_spread_points
    hot = [rate for rate in RATES_MESSAGES_PER_S if rate > pulsar.split.max_messages_per_s]
    assert len(hot) == 1


def test_what_a_broker_of_the_extensible_load_manager_publishes_is_shown_alike():
    loads = Loads(capacity_messages_per_s=400.0)
    data = {
        "weightedMaxEMA": 0.1,
        "msgThroughputEMA": 5.0,
        "updatedAt": 1,
        "msgRateIn": 60.0,
        "msgRateOut": 40.0,
        "bundles": ["t/n/0x0_0x1", "pulsar/lab/b1:8080/0x00000000_0xffffffff"],
    }
    loads.published("b1", msgspec.json.encode(data))
    sweep = loads.tick(TickData(asked=["b1"]), 5)
    assert sweep is not None
    assert [(each.usage_points, each.bundles_count) for each in sweep.brokers] == [(25.0, 1)]


@pytest.mark.live
@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--extensible"]], ids=["modular", "extensible"])
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_without_a_terminal_it_balances_and_leaves_nothing_behind(tmp_path: Path, options: list[str]):
    temporary = tmp_path / "t"
    temporary.mkdir()
    message = output_without_terminal("deploy.local.demo", temporary, "--pulsar", *options, timeout_s=800)
    assert re.search(r"balanced, first after \d+ s: spread", message)
    assert "decided: split shop/orders/" in message
    assert "  split: shop/orders/" in message
    assert "moved: shop/orders/" in message


@pytest.mark.live
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("moment", ["starting traffic", "decisions: "])
def test_ctrl_c_stops_all_of_it_whenever_it_comes(tmp_path: Path, moment: str) -> None:
    assert_ctrl_c_ends("deploy.local.demo", tmp_path, "--pulsar", moment=moment, within_s=STOP_S_MAX)
