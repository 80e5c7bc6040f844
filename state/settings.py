"""The settings that can change a decision: those of rounds, of a Pulsar and of a Kafka cluster, and their digest.

Each policy declares its own, and this layer composes them. All are fixed at start or changed by a control event;
``streaming.settings`` fills them from file, environment and flags, and validates them. Each round summary carries the digest of
those in force: equal digests mean equal settings. It covers the values that differ from the defaults, and ``DEFAULTS``, so a new
setting that is off by default changes neither the digest nor the bytes of a summary where it is not used.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Protocol, TypeAlias, TypeVar

import msgspec
from annotated_types import Ge, Le

from policies.bounds import Count, NotNegative, NotNegativeInt, check_bounds
from policies.placement import LEFT_TO_PULSAR, PLACEMENTS
from policies.shedding import fleet_planner, overload_shedder, registry
from policies.shedding.contract import SettingsT, SheddingPolicy
from policies.splitting.plan import SplitSettings
from policies.throttle.capacity import KafkaCapacitySettings
from policies.throttle.rates import ThrottleSettings
from policies.usage import CapacitySettings, UsageSettings
from policies.wording import digits
from state.events import System
from state.guard_settings import ApprovalSettings, GuardSettings, Zones

MS_PER_S = 1000
LONGEST_S = 1e9
"""Longest round and longest life of an action, about 31 years: their ends stay within the calendar."""

MAX_OPEN_ROUNDS_COUNT: Final = 1_000
"""Most rounds that may be open at once, which is ``lateness_s`` divided by ``length_s``; each is a part of a value that every
batch writes."""


_RoundLength = Annotated[float, Ge(1 / MS_PER_S), Le(LONGEST_S), f"from a millisecond to {LONGEST_S:,.0f} s"]


def to_ms(seconds: float) -> int:
    """Whole milliseconds; all event time is counted in them, so that rounds never depend on float division."""
    return round(seconds * MS_PER_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundSettings:
    """How event time is cut into rounds, and what a round needs before its policies run. Not changeable by control."""

    length_s: _RoundLength = 60.0
    """Length of a round; one minute is Pulsar's own shedding interval.
    Pulsar: ``loadBalancerSheddingIntervalMinutes``."""
    lateness_s: NotNegative = 10.0
    """How long after a round's end its events are still taken; the round closes when event time reaches that moment."""
    warmup_rounds: NotNegativeInt = 1
    """Rounds after a (re)start in which only averages are built: the first numbers of a broker are noisy. 0 = off."""
    quorum_ratio: NotNegative = 0.6
    """Share of the live brokers that must report for the policies to run; with fewer, the mean is useless. 0 = off."""
    max_report_age_s: NotNegative = 180.0
    """A broker that is silent for longer is no longer live, and its memory is dropped; a cluster that is silent for longer
    starts again. Three rounds, so that one lost report does not count as a dead broker."""
    max_ahead_s: NotNegative = 10.0
    """How far an event's time may be ahead of its append time; a wrong clock must not close other brokers' rounds."""

    forget_cluster_s: NotNegative = 604_800.0
    """A cluster whose load reports come back after a longer silence is treated as a new one: all earlier decisions about it are
    forgotten, with their cooldowns, budgets and failures. A week, so that no outage or maintenance causes this.
    A value below ``max_report_age_s`` counts as ``max_report_age_s``. 0 = off."""

    def __post_init__(self) -> None:
        check_bounds(self)
        if self.lateness_s > MAX_OPEN_ROUNDS_COUNT * self.length_s:
            raise ValueError(
                f"lateness_s is {self.lateness_s}; at most {MAX_OPEN_ROUNDS_COUNT} rounds of {digits(self.length_s)} s may be open at "
                f"once"
            )

    @property
    def length_ms(self) -> int:
        """Length of a round in milliseconds."""
        return to_ms(self.length_s)

    @property
    def lateness_ms(self) -> int:
        """Lateness in milliseconds."""
        return to_ms(self.lateness_s)

    @property
    def max_report_age_ms(self) -> int:
        """Age of a report in milliseconds above which its broker is not live."""
        return to_ms(self.max_report_age_s)

    @property
    def forget_cluster_ms(self) -> int:
        """Milliseconds of silence after which a cluster is taken for a new one; 0: never."""
        return to_ms(self.forget_cluster_s)

    @property
    def max_ahead_ms(self) -> int:
        """Milliseconds an event may be ahead of its append time."""
        return to_ms(self.max_ahead_s)

    def first_open(self, newest_ms: int) -> int:
        """Number of the first round that is open when the newest event has this time."""
        return (newest_ms - self.lateness_ms) // self.length_ms

    def is_ahead(self, time_ms: int, appended_ms: int) -> bool:
        """Whether an event's time is too far ahead of the time it was appended."""
        return time_ms > appended_ms + self.max_ahead_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaRoundSettings(RoundSettings):
    """How event time is cut into rounds for Kafka clusters. Not changeable by control.

    Rounds are short, because a throttle that is too low stalls a move.
    """

    length_s: _RoundLength = 10.0
    """Length of a round; Kafka's quota window is as long. Do not set it below 5: write rates come from the growth of logs
    between two rounds."""
    lateness_s: NotNegative = 5.0
    """How long after a round's end its events are still taken; the round closes when event time reaches that moment."""
    warmup_rounds: NotNegativeInt = 1
    """Rounds after a (re)start in which nothing is decided: write rates come from the growth of logs between two
    rounds."""
    quorum_ratio: NotNegative = 0.0
    """Share of the live brokers that must report for anything to be decided. Off: numbers that a missing broker would have
    reported are listed as unknown, and only decisions that need them wait."""
    max_report_age_s: NotNegative = 180.0
    """A broker that is silent for longer is no longer live; log readings that are older are forgotten."""
    max_ahead_s: NotNegative = 10.0
    """How far an event's time may be ahead of its append time; a wrong clock must not close other brokers' rounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings:
    """Everything that decides about a Kafka cluster."""

    rounds: KafkaRoundSettings = field(default_factory=KafkaRoundSettings)
    throttle: ThrottleSettings = field(default_factory=ThrottleSettings)
    capacity: KafkaCapacitySettings = field(default_factory=KafkaCapacitySettings)


DEFAULTS = 2
"""Raised whenever a default changes its value: the same file then means something else.
``tests/state/test_settings_digest.py`` holds the defaults that this number stands for."""


def differing(settings: Any, defaults: Any) -> dict[str, Any]:
    """The values of a settings dataclass that differ from ``defaults``, as a tree of field names."""
    tree: dict[str, Any] = {}
    for setting in fields(settings):
        value, default = getattr(settings, setting.name), getattr(defaults, setting.name)
        if is_dataclass(value) and type(value) is type(default):
            inner = differing(value, default)
            if inner:
                tree[setting.name] = inner
        elif value != default:
            tree[setting.name] = value
    return tree


@dataclass(frozen=True, slots=True)
class InForce:
    """The settings in force for one kind of cluster, as its round summaries show them."""

    different: dict[str, Any]
    """Those that differ from the defaults, as a tree of field names."""
    digest: str
    """The first 16 hex digits of SHA-256 over their canonical JSON (sorted keys, no spaces), however they were written."""

    @classmethod
    def from_settings(cls, settings: Any, zones: Zones | None = None) -> "InForce":
        """Of a dataclass that has a default for every field; ``zones`` are the time zones that it names."""
        different = differing(settings, type(settings)())
        deciding = {"defaults": DEFAULTS, "differing": different} | ({"zones": zones} if zones else {})
        digested = msgspec.json.encode(deciding, order="sorted")
        return cls(different, hashlib.sha256(digested).hexdigest()[:16])


Mode = Literal["dry-run", "act"]
ClassT = TypeVar("ClassT")


if TYPE_CHECKING:
    PolicyName: TypeAlias = str
    PlacementName: TypeAlias = str
else:
    PlacementName = Literal[(LEFT_TO_PULSAR, *(placement.name for placement in PLACEMENTS))]
    PolicyName = Literal[tuple(policy.name for policy in registry.POLICIES)]


def _with_policies(*, after: str) -> Callable[[type[ClassT]], type[ClassT]]:
    """Give a class a section for the settings of each shedding policy, behind the field ``after``."""

    def declare(kind: type[ClassT]) -> type[ClassT]:
        annotations = dict(kind.__annotations__)
        place = list(annotations).index(after) + 1
        sections = {policy.section: policy.settings for policy in registry.POLICIES}
        head, tail = list(annotations.items())[:place], list(annotations.items())[place:]
        kind.__annotations__ = {**dict(head), **sections, **dict(tail)}
        for name, settings in sections.items():
            setattr(kind, name, field(default_factory=settings))
        return kind

    return declare


@dataclass(frozen=True, slots=True, kw_only=True)
@_with_policies(after="capacity")
class PulsarSettings:
    """Everything that decides about a Pulsar cluster."""

    shedding_policy: PolicyName = field(
        default=registry.POLICIES[0].name, metadata={"recommended": fleet_planner.NAME}
    )
    """Which policy chooses unloads. The fleet planner has fleets balanced sooner than Pulsar's policies, in most scenarios with fewer moves
    than AvgShedder. The others decide as Pulsar does. avg-shedder is Pulsar 5.0's default, too."""
    placement: PlacementName = LEFT_TO_PULSAR
    """What chooses the destination where the policy names none: Pulsar ("broker"), or this program by one of Pulsar's
    rules. Pulsar: ``loadBalancerLoadPlacementStrategy``."""
    bundle_average_samples: Count = 10
    """Samples in a bundle's running average of traffic, one per round. Pulsar: ``NUM_SHORT_SAMPLES`` of ``BundleData``."""
    skip_sample_after_move: bool = True
    """Leave out the first sample of a bundle's new owner: for one stats period after a move it is noise."""
    shadow: bool = True
    """Whether a dry-run counts each bundle that it would have moved at its destination, so that it shows about as many moves as
    mode ``act`` would make. Set it to false to compare decisions with Pulsar's. It is off by itself while a collector finds
    another balancer shedding."""
    rounds: RoundSettings = field(default_factory=RoundSettings)
    usage: UsageSettings = field(default_factory=UsageSettings)
    capacity: CapacitySettings = field(default_factory=CapacitySettings)
    split: SplitSettings = field(default_factory=SplitSettings)
    guards: GuardSettings = field(default_factory=GuardSettings)
    approval: ApprovalSettings = field(default_factory=ApprovalSettings)

    def __post_init__(self) -> None:
        check_bounds(self)

    @property
    def policy(self) -> registry.AnyPolicy:
        """The policy that chooses unloads."""
        return next(policy for policy in registry.POLICIES if policy.name == self.shedding_policy)

    def section_of(self, policy: SheddingPolicy[SettingsT, Any, Any]) -> SettingsT:
        """The section of a policy."""
        settings: SettingsT = getattr(self, policy.section)
        return settings

    @property
    def overloaded_ratio(self) -> float:
        """Usage from which a broker is overloaded, whichever policy is in force."""
        return self.section_of(overload_shedder.POLICY).threshold_ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """What is in force for one cluster in one round."""

    pulsar: PulsarSettings = field(default_factory=PulsarSettings)
    kafka: KafkaSettings = field(default_factory=KafkaSettings)
    zones: Zones = field(default_factory=dict)
    """The time zones that the settings name."""
    in_force: Mapping[System, InForce] = field(init=False)
    """What a cluster's round summaries show of the settings that decide about it, by the kind of cluster."""

    def __post_init__(self) -> None:
        in_force = {
            "pulsar": InForce.from_settings(self.pulsar, self.zones),
            "kafka": InForce.from_settings(self.kafka),
        }
        object.__setattr__(self, "in_force", in_force)


class OverlayError(Exception):
    """A control event's settings were refused; ``reason`` is the reason of the rejected event."""

    def __init__(self, reason: Literal["bad-settings", "not-changeable"], message: str) -> None:
        super().__init__(reason, message)
        self.reason: Literal["bad-settings", "not-changeable"] = reason
        self.message = message

    def __str__(self) -> str:
        return self.message


class SettingsSource(Protocol):
    """Where the settings of a cluster come from; pure: equal arguments give equal settings."""

    def base(self, cluster: str) -> ClusterSettings:
        """Settings of a cluster without a control event: defaults, file, the file's section of the cluster."""

    def overlaid(self, cluster: str, overlay: bytes) -> ClusterSettings:
        """``base`` with the overlay of a control event, a JSON object, merged over it; raises ``OverlayError``."""
