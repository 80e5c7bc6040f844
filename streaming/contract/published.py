"""Every event that trimtab publishes, as one typed struct with its envelope: to read it back and to generate schemas.

``streaming.contract.encode`` embeds `data` that is already JSON, so these structs publish nothing themselves; a test checks
every event of a replay against them, unknown fields included.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from state.outputs import RoundSummary, Split, Throttle, Unload
from state.outputs.actions import ROUND_TYPE, SPLIT_TYPE, THROTTLE_TYPE, UNLOAD_TYPE
from streaming.contract.encode import (
    LEADER_TYPE,
    REJECTED_TYPE,
    SKIPPED_TYPE,
    LeaderData,
    RejectedData,
    SkippedData,
)
from streaming.contract.messages import CLUSTER_PATTERN, Cluster, Text

Id = Annotated[str, Meta(pattern=r"^[0-9a-f]{32}$")]
Source = Annotated[str, Meta(pattern=r"^/trimtab/[A-Za-z0-9._-]{1,100}$")]
Time = Annotated[
    str,
    Meta(
        pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$",
        extra_json_schema={"format": "date-time"},
    ),
]
MaybeCluster = Annotated[str, Meta(pattern=f"{CLUSTER_PATTERN}|^$")]


class Published(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """CloudEvents 1.0 attributes of the events that trimtab publishes."""

    specversion: Literal["1.0"]
    id: Id
    """Hash of what is decided: cluster, round, type, subject, and what is to be done, not of the reason and the numbers. The same
    decision has the same id, wherever and whenever it is computed, also by another version that explains it better."""
    source: Source
    """`/trimtab/` and the controller's name. A consumer keeps the highest `trimtab-epoch` of each source in each partition."""
    datacontenttype: Literal["application/json"]


class UnloadMessage(Published, frozen=True, kw_only=True, tag=UNLOAD_TYPE):
    """Move one bundle to another broker; an executor carries it out unless it expired or no longer applies."""

    subject: Text
    """The bundle."""
    time: Time
    """End of the round that decided it."""
    cluster: Cluster
    data: Unload


class SplitMessage(Published, frozen=True, kw_only=True, tag=SPLIT_TYPE):
    """Cut one bundle; an executor carries it out unless it expired or no longer applies. It cannot be undone."""

    subject: Text
    """The bundle."""
    time: Time
    """End of the round that decided it."""
    cluster: Cluster
    data: Split


class ThrottleMessage(Published, frozen=True, kw_only=True, tag=THROTTLE_TYPE):
    """Throttle the reassignments of a Kafka cluster, or remove the throttle; an executor carries it out unless it expired."""

    subject: Literal["reassignments"]
    """Always `reassignments`, because a cluster has one throttle."""
    time: Time
    """End of the round that decided it."""
    cluster: Cluster
    data: Throttle


class RoundMessage(Published, frozen=True, kw_only=True, tag=ROUND_TYPE):
    """One closed round: what was seen, decided, held back, and why; it follows the round's actions."""

    subject: Literal["round"]
    time: Time
    """End of the round."""
    cluster: Cluster
    data: RoundSummary


class RejectedMessage(Published, frozen=True, kw_only=True, tag=REJECTED_TYPE):
    """A record that could not be used, with the reason; the `id` is computed from the record's coordinates."""

    subject: Text
    """The reason, as in `data`."""
    time: Time | msgspec.UnsetType = msgspec.UNSET
    """When the record was appended to its log; absent where that is not known."""
    cluster: MaybeCluster
    """The record's cluster; empty where it is not valid or not equal to the record's key."""
    data: RejectedData


class SkippedMessage(Published, frozen=True, kw_only=True, tag=SKIPPED_TYPE):
    """Input that was deleted before it was read, and that the controller skipped because of `--skip-lost`."""

    subject: Literal["input"]
    time: Time
    """When the controller published it."""
    cluster: Literal[""]
    """Always empty, and so is the record's key: the clusters of the skipped records are not known."""
    data: SkippedData


class LeaderMessage(Published, frozen=True, kw_only=True, tag=LEADER_TYPE):
    """A controller has taken over: in each partition, executors must not obey later actions of its source with a lower epoch.

    This event is not a decision, and actions that came before it stay valid.
    """

    subject: Literal["leader"]
    time: Time
    """When it took over."""
    cluster: Literal[""]
    """Always empty, and so is the record's key: the event is in every partition, for all clusters."""
    data: LeaderData
