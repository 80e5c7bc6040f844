"""What is remembered about a Pulsar cluster beside the header: its fleet, and the reports and statistics of open rounds."""

from typing import Any, NamedTuple

import msgspec
import numpy as np

from policies.columns import Bools, Floats, Ints
from policies.costs import CostMemory
from policies.splitting.plan import BlindCut
from policies.usage import RESOURCES
from state.events import BrokerReport, TopicTraffic

NOBODY = -1
"""Owner of a bundle whose broker is forgotten."""

PolicyMemory = dict[str, dict[str, dict[str, Any]]]
"""Values by shedding policy, field of its memory, and broker or group (the default group is the empty text):
see ``state.pulsar.policy_memory``."""


ShadowMoves = dict[str, tuple[str, str]]
"""By bundle that a dry-run has moved, the broker that has it and the one where it counts: see ``state.pulsar.shadow``."""


class Gathered(NamedTuple):
    """The one broker that has all bundles of ``pulsar/system``: see ``state.pulsar.coordinators``."""

    broker: str
    since_ms: int


class Names:
    """Names of rows, as a list and as the text that is stored: each is made from the other when it is first needed."""

    __slots__ = ("_list", "_text")

    def __init__(self, names: list[str] | None = None, text: str | None = None) -> None:
        """One of the two, or both if they have the same names."""
        self._list, self._text = names, text

    @property
    def each(self) -> list[str]:
        """A string for each row."""
        if self._list is None:
            self._list = self._text.split("\n") if self._text else []
        return self._list

    @property
    def text(self) -> str:
        """One name per line; no name contains a line break."""
        if self._text is None:
            self._text = "\n".join(self.each)
        return self._text

    def begin_with(self, names: list[str]) -> bool:
        """Whether the first names are these; one text is compared faster than a hundred thousand equal strings."""
        first, text = "\n".join(names), self.text
        return text.startswith(first) and (not names or len(text) == len(first) or text[len(first)] == "\n")


class Fleet:
    """Brokers and bundles of one cluster and what the policies remember about them. Replaced, never mutated in place."""

    __slots__ = (
        "above_limit_rounds",
        "averages",
        "blind_cuts",
        "broker_last_ms",
        "brokers",
        "bundle_names",
        "costs",
        "counts",
        "gathered",
        "has_absent",
        "idle_since_ms",
        "last_ms",
        "listed_count",
        "listed_rows",
        "namespace",
        "namespaces",
        "overlapping",
        "owed_skip",
        "owner",
        "policies",
        "run_start_ms",
        "samples",
        "shadow",
        "split_averages",
        "split_hits",
        "split_samples",
        "starts",
        "unmeasured_rounds",
    )

    def __init__(self) -> None:  # noqa: PLR0915  an attribute and its docstring for each column
        self.brokers: list[str] = []
        """Broker ids, ascending; k of them."""
        self.broker_last_ms: Ints = np.zeros(0, dtype=np.int64)
        """Time of each broker's newest snapshot report, (k,)."""
        self.above_limit_rounds: Ints = np.zeros((0, len(RESOURCES)), dtype=np.int64)
        """Rounds in a row with an impossible usage of each resource, (k, resources): see ``state.pulsar.findings``."""
        self.unmeasured_rounds: Ints = np.zeros((0, len(RESOURCES)), dtype=np.int64)
        """Rounds in a row in which each resource was not measured, (k, resources)."""
        self.idle_since_ms: Ints = np.zeros(0, dtype=np.int64)
        """Start of the first round since which each broker has carried nothing, -1 where it carries something, (k,)."""
        self.starts: Ints = np.zeros(1, dtype=np.int64)
        """(k + 1,): entries ``starts[i]:starts[i + 1]`` of the two columns below are broker i's listings."""
        self.listed_rows: Ints = np.zeros(0, dtype=np.int64)
        """Bundle row of each listing."""
        self.run_start_ms: Ints = np.zeros(0, dtype=np.int64)
        """When the unbroken run of each listing began."""
        self.bundle_names = Names([])
        """Names of the bundles; b of them."""
        self.owner: Ints = np.zeros(0, dtype=np.int64)
        """Broker row that owns each bundle, -1 where that broker is forgotten, (b,)."""
        self.averages: Floats = np.zeros((0, 4))
        """Running averages of the traffic, (b, 4)."""
        self.samples: Ints = np.zeros(0, dtype=np.int64)
        """Samples in the average, at most ``bundle_average_samples``, (b,)."""
        self.last_ms: Ints = np.zeros(0, dtype=np.int64)
        """When each bundle was last listed, (b,)."""
        self.counts: Ints = np.zeros((0, 2), dtype=np.int64)
        """Topics and sessions, as last reported, (b, 2); 0 for a policy that keeps no absent bundles."""
        self.listed_count = 0
        """How many bundles, the first ones, the last snapshot has."""
        self.has_absent = False
        """Whether some of them only stayed there."""
        self.overlapping: list[str] = []
        """Those of them whose ranges overlap, ascending."""
        self.owed_skip: Bools = np.zeros(0, dtype=np.bool_)
        """Whether the owner's next sample is its first after a move, (b,)."""
        self.namespaces: list[str] = []
        """Namespaces of the bundles; s of them."""
        self.namespace: Ints = np.zeros(0, dtype=np.int64)
        """Row of each bundle's namespace, (b,)."""
        self.split_averages: Floats = np.zeros((0, 2))
        """Message rate and throughput, in + out, as the split criteria average them, (b, 2)."""
        self.split_samples: Ints = np.zeros(0, dtype=np.int64)
        """Samples in them, at most ``average_samples``, (b,); none while splits are switched off."""
        self.split_hits: Ints = np.zeros(0, dtype=np.int64)
        """Rounds in a row each bundle was above a limit, (b,)."""
        self.costs = CostMemory()
        """What was learned of the costs of traffic."""
        self.policies: PolicyMemory = {}
        """What the shedding policies remember."""
        self.gathered: Gathered | None = None
        """Where the transaction coordinators are, if all are at one broker."""
        self.shadow: ShadowMoves = {}
        """What a dry-run has moved."""
        self.blind_cuts: dict[str, BlindCut] = {}
        """By listed bundle, the bundle it was cut from without knowing what its topics carry."""

    @property
    def bundles(self) -> list[str]:
        """Bundle names; b of them."""
        return self.bundle_names.each

    @bundles.setter
    def bundles(self, names: list[str]) -> None:
        self.bundle_names = Names(names)

    def forget_policies(self) -> None:
        """Reset the hit counts and whatever else the policies remember."""
        self.split_hits = np.zeros_like(self.split_hits)
        self.policies = {}


class WaitingReport(msgspec.Struct, frozen=True):
    """A broker's newest report of an open round."""

    time_ms: int
    id: str
    report: BrokerReport

    @property
    def age_key(self) -> tuple[int, str]:
        """Newest wins; equal times: the greater id."""
        return (self.time_ms, self.id)

    @property
    def rows_count(self) -> int:
        """Number of bundles in the report."""
        return len(self.report.bundles)


class WaitingTopics(msgspec.Struct, frozen=True):
    """A broker's newest topic statistics of an open round."""

    time_ms: int
    id: str
    traffic: TopicTraffic

    @property
    def age_key(self) -> tuple[int, str]:
        """Newest wins; equal times: the greater id."""
        return (self.time_ms, self.id)

    @property
    def rows_count(self) -> int:
        """Number of topics in the statistics."""
        return len(self.traffic.topics)
