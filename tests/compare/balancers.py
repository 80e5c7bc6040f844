"""Who balances: each at its documented defaults, but for what does not fit on one host or into a run.

* Usage is bandwidth (``CARD_GBIT_PER_S``), because brokers on one host share its processors: the weight of CPU is 0 for all.
* Rates below which a move is not worth it, and above which a bundle is cut, are a ``MESSAGE_PARTS``-th or ``BYTE_PARTS``-th of the
  defaults for all, because these brokers carry some hundred messages a second and not tens of thousands.
* Times for which a bundle or a broker is left alone are a ``TIME_PARTS``-th for all; Pulsar's shedding interval, trimtab's rounds and
  everybody's hit counts stay.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from deploy.local.pulsar_settings import LoadManager
from tests.compare.scenarios import CARD_GBIT_PER_S

MESSAGE_PARTS, BYTE_PARTS, TIME_PARTS = 200, 100, 10
_PACKAGE = "org.apache.pulsar.broker.loadbalance.impl"

_EVERY_BROKER: Mapping[str, object] = {
    # what the local cluster sets for the tests, back at Pulsar's defaults
    "statsUpdateFrequencyInSecs": 60,
    "statsUpdateInitialDelayInSecs": 60,
    "loadBalancerReportUpdateMinIntervalMillis": 5000,
    "loadBalancerReportUpdateMaxIntervalMinutes": 15,
    "loadBalancerReportUpdateThresholdPercentage": 10,
    "loadBalancerResourceQuotaUpdateIntervalMinutes": 15,
    "managedLedgerMaxEntriesPerLedger": 50000,
    "managedLedgerMinLedgerRolloverTimeMinutes": 10,
    # the card is what is used
    "loadBalancerOverrideBrokerNicSpeedGbps": CARD_GBIT_PER_S,
    "loadBalancerCPUResourceWeight": 0.0,
    "loadBalancerMemoryResourceWeight": 0.0,
    "loadBalancerDirectMemoryResourceWeight": 0.0,
}
_SHEDDING: Mapping[str, object] = {
    "loadBalancerSheddingEnabled": "true",
    "loadBalancerAutoBundleSplitEnabled": "true",
    "loadBalancerAutoUnloadSplitBundlesEnabled": "true",
    "loadBalancerSheddingGracePeriodMinutes": 30 // TIME_PARTS,
    "loadBalanceSheddingDelayInSeconds": 180 // TIME_PARTS,
    "minUnloadMessage": 1000 // MESSAGE_PARTS,
    "minUnloadMessageThroughput": 1024 * 1024 // BYTE_PARTS,
    "loadBalancerBundleUnloadMinThroughputThreshold": 10 / BYTE_PARTS,
    "loadBalancerNamespaceBundleMaxMsgRate": 30000 // MESSAGE_PARTS,
    "loadBalancerNamespaceBundleMaxBandwidthMbytes": 100 // BYTE_PARTS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Balancer:
    """One of those that are compared."""

    name: str
    text: str
    load_manager: LoadManager = "modular"
    broker: Mapping[str, object] = field(default_factory=dict)
    """Keys of `broker.conf`."""
    policy: str | None = None
    """trimtab's; None: it does not run."""
    splits: bool = True

    def broker_settings(self) -> dict[str, object]:
        """What every broker of its cluster is told."""
        return {**_EVERY_BROKER, **self.broker}

    def settings(self) -> dict[str, dict[str, Any]]:
        """The settings file of trimtab, by section."""
        return {
            "controller": {"mode": "act"},
            "spark": {"master": "local[2]", "shuffle_partitions": 1, "driver_memory": "512m"},
            "spark.extra": {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"},
            "pulsar": {"shedding_policy": self.policy},
            "pulsar.usage": {"cpu_weight": 0},
            "pulsar.avg_shedder": {
                "min_unload_messages_per_s": 1000 / MESSAGE_PARTS,
                "min_unload_bytes_per_s": 1048576 / BYTE_PARTS,
            },
            "pulsar.guards": {
                "bundle_cooldown_s": 1800 / TIME_PARTS,
                "ineffective_rest_s": 7200 / TIME_PARTS,
            },
            "pulsar.split": {
                "enabled": self.splits,
                "max_messages_per_s": 30000 / MESSAGE_PARTS,
                "max_bytes_per_s": 104857600 / BYTE_PARTS,
                "bundle_cooldown_s": 1800 / TIME_PARTS,
            },
        }


BALANCERS: Mapping[str, Balancer] = {
    balancer.name: balancer
    for balancer in (
        Balancer(name="nobody", text="nobody; Pulsar only places bundles that lost their broker"),
        Balancer(
            name="threshold-shedder",
            text="Pulsar's modular manager with ThresholdShedder, the default of 4.x",
            broker=_SHEDDING,
        ),
        Balancer(
            name="avg-shedder",
            text="Pulsar's modular manager with AvgShedder for shedding and placement, as 5.0 sets it",
            broker={
                **_SHEDDING,
                "loadBalancerLoadSheddingStrategy": f"{_PACKAGE}.AvgShedder",
                "loadBalancerLoadPlacementStrategy": f"{_PACKAGE}.AvgShedder",
                "maxUnloadPercentage": 0.5,
                "loadBalancerDistributeBundlesEvenlyEnabled": "false",
            },
        ),
        Balancer(
            name="transfer-shedder",
            text="Pulsar's extensible manager with TransferShedder",
            load_manager="extensible",
            broker=_SHEDDING,
        ),
        Balancer(name="trimtab-avg-shedder", text="trimtab with `avg-shedder`", policy="avg-shedder"),
        Balancer(name="trimtab-fleet-planner", text="trimtab with `fleet-planner`", policy="fleet-planner"),
        Balancer(
            name="trimtab-no-splits",
            text="trimtab with `fleet-planner`, splits off, as it is by default",
            policy="fleet-planner",
            splits=False,
        ),
    )
}
