"""Random cases for TransferShedder, given to both Pulsar's class and the policy.

A case is a fleet over several rounds with the settings: plain JSON, so that the harness in Java reads the same. Numbers are
small and coarse, so that ties and equalities are common.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from policies.columns import Floats
from policies.shedding.transfer_shedder import TransferShedderSettings
from policies.shedding.view import BrokerTable, BundleTable, PublishedLoads, RoundView
from policies.usage import RESOURCES

Case = Mapping[str, Any]

ROUNDS_PER_CASE = 6
NAMES = (
    "broker-10:8080",
    "broker-2:8080",
    "zeta:8080",
    "B:8080",
    "a:8080",
    "broker-1:8080",
    "é:8080",
    "b:8080",
)
"""Unordered, and their order by name is not the one by number."""


class Dice:
    """Choices from one seed."""

    def __init__(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed)

    def one_of(self, *values: Any) -> Any:
        return values[int(self.generator.integers(len(values)))]

    def often(self, ratio: float) -> bool:
        return bool(self.generator.random() < ratio)

    def below(self, end: int) -> int:
        return int(self.generator.integers(end))


def random_case(seed: int) -> Case:
    """A fleet over several rounds: most brokers stay as they are, some change."""
    dice = Dice(seed)
    names = [NAMES[row] for row in dice.generator.permutation(len(NAMES))[: 2 + dice.below(len(NAMES) - 1)]]
    fleet = {name: _random_broker(dice, name) for name in names}
    rounds = []
    for _ in range(ROUNDS_PER_CASE):
        fleet = {
            name: _random_broker(dice, name) if dice.often(0.15) else broker for name, broker in fleet.items()
        }
        rounds.append({"brokers": _disturbed(dice, fleet)})
    settings = {
        "target_std_ratio": dice.one_of(0.25, 0.25, 0.1, 0.0, 0.4, 1.5),
        "overloaded_points": dice.one_of(85, 85, 60, 100),
        "hit_count": dice.one_of(0, 0, 1, 3),
        "max_brokers_count": dice.one_of(3, 3, 1, 2, 8),
        "transfer": dice.often(0.8),
        "shedding_delay_s": dice.one_of(180, 180, 0),
        "load_data_ttl_s": 1800,
    }
    return {"settings": settings, "rounds": rounds}


def _random_broker(dice: Dice, name: str) -> dict[str, Any]:
    scale = dice.one_of(1.0, 1.0, 1000.0, 1 / 3)
    volumes = [dice.below(9) * scale for _ in range(dice.one_of(0, 1, 2, 3, 5, 10))]
    if dice.often(0.9):
        volumes.sort()
    rest = dice.one_of(0.0, 0.0, 5.0) * scale
    volume = sum(volumes) + rest
    return {
        "usage_ratio": dice.one_of(0.0, 0.1, 0.2, 0.3, 0.3, 0.5, 0.6, 0.7, 0.9, 0.95, 1.2),
        "bytes_per_s": volume,
        "smoothed_bytes_per_s": volume * dice.one_of(1.0, 1.0, 0.5, 0.05),
        "age_s": dice.one_of(5, 60, 900),
        "top": [
            {
                "name": f"shop/{name.partition(':')[0]}/0x{place:08x}_0x{place + 1:08x}",
                "bytes_per_s": each,
                "movable": True,
            }
            for place, each in enumerate(volumes)
        ],
    }


def _disturbed(dice: Dice, fleet: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The fleet with the disturbances that happen now and then.

    A bundle rests only at brokers that cannot be the idler one of a pair: there Pulsar would swap it back although it rests.
    """
    ranked = sorted(fleet, key=lambda name: (fleet[name]["usage_ratio"], name))
    shown = {name: dict(broker) for name, broker in fleet.items()}
    if dice.often(0.1):
        shown[dice.one_of(*fleet)]["age_s"] = 1900
    if dice.often(0.1):
        broker = shown[dice.one_of(*fleet)]
        broker["unloaded_age_s"] = broker["age_s"] + dice.one_of(10, 179, 180, 400)
    if dice.often(0.05):
        shown[dice.one_of(*fleet)]["missing"] = True
    elif dice.often(0.3):
        for name in ranked[len(ranked) // 2 :]:
            shown[name]["top"] = [{**each, "movable": dice.often(0.7)} for each in fleet[name]["top"]]
    return {name: shown[name] for name in sorted(shown)}


def view_of(round_: Mapping[str, Any]) -> RoundView:
    """What the policy sees of a round."""
    brokers = round_["brokers"]
    names = tuple(sorted(name for name, broker in brokers.items() if "missing" not in broker))
    fleet = [brokers[name] for name in names]
    unmeasured = np.zeros((len(names), len(RESOURCES)))
    counts = [len(broker["top"]) for broker in fleet]
    table = BrokerTable(
        names=names,
        usage_ratio=np.zeros(len(names)),
        percents=unmeasured,
        limits=unmeasured,
        measured=unmeasured > 0,
        is_measured=np.zeros(len(names), dtype=np.bool_),
        report_age_s=np.zeros(len(names)),
        messages_per_s=np.zeros(len(names)),
        bytes_per_s=_column(fleet, "bytes_per_s"),
        listed_bundle_counts=np.array(counts, dtype=np.int64),
        may_receive=np.ones(len(names), dtype=np.bool_),
    )
    published = [each for broker in fleet for each in broker["top"]]
    rows = {each["name"]: row for row, each in enumerate(_by_name(fleet))}
    bundles = list(_by_name(fleet))
    volumes = _column(bundles, "bytes_per_s")
    starts = np.cumsum([0, *counts]).astype(np.int64)
    return RoundView(
        brokers=table,
        bundles=BundleTable(
            names=[each["name"] for each in bundles],
            starts=starts,
            rates=np.column_stack([np.zeros((len(bundles), 2)), volumes, np.zeros(len(bundles))]),
            sampled=np.ones(len(bundles), dtype=np.bool_),
            messages_per_s=np.zeros(len(bundles)),
            bytes_per_s=volumes,
            counts=np.zeros((len(bundles), 2), dtype=np.int64),
            movable=np.array([each["movable"] for each in bundles], dtype=np.bool_),
        ),
        published=PublishedLoads(
            usage_ratio=_column(fleet, "usage_ratio"),
            bytes_per_s=_column(fleet, "smoothed_bytes_per_s"),
            age_s=_column(fleet, "age_s"),
            top_starts=starts,
            top_rows=np.array([rows[each["name"]] for each in published], dtype=np.int64),
            top_bytes_per_s=_column(published, "bytes_per_s"),
        ),
        missing=[name for name, broker in brokers.items() if "missing" in broker],
        unloaded_ages_s=lambda: {
            name: float(broker["unloaded_age_s"])
            for name, broker in brokers.items()
            if "unloaded_age_s" in broker
        },
    )


def _by_name(fleet: list[Any]) -> list[Any]:
    return [each for broker in fleet for each in sorted(broker["top"], key=lambda each: str(each["name"]))]


def _column(rows: list[Any], name: str) -> Floats:
    return np.array([float(row[name]) for row in rows], dtype=np.float64)


def settings_of(case: Case) -> TransferShedderSettings:
    """The settings of a case."""
    return TransferShedderSettings(**case["settings"])
