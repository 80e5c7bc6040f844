"""The settings that shape the outputs of a batch: what a controller is started with, and which clusters it accepts.

They are kept in the checkpoint's card, to run one batch with them again. Secrets and addresses are left out: they may
change between two runs of a batch without changing its outputs.

Every accepted cluster gets memory and metrics of its own, as long as reports with its name arrive. A record with another
name is refused before anything is remembered of it.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from pydantic import TypeAdapter

from state.closing import UNBOUNDED, Identity, MemoryStart
from state.events import Control, Event, Rejection
from streaming.settings.catalog import SettingsError
from streaming.settings.load import compose
from streaming.settings.sections import Settings

PULSAR_ACTION_BYTES = 5_000_000
"""Largest action for an output on Pulsar: its brokers accept 5 MiB (``maxMessageSize``), envelope included."""


def identity_of(settings: Settings, memory_start: MemoryStart = UNBOUNDED) -> Identity:
    """What a controller with these settings is started with; without a start of its memory it acts in every round."""
    controller = settings.controller
    identity = Identity(
        mode=controller.mode,
        action_ttl_s=controller.action_ttl_s,
        approval=controller.approval,
        proposal_ttl_s=controller.proposal_ttl_s,
        memory_start=memory_start,
    )
    return replace(identity, max_action_bytes=PULSAR_ACTION_BYTES) if settings.output_is_pulsar else identity


_WHOLE = ("pulsar", "kafka", "clusters")
_KEPT: dict[str, Any] = {
    "controller": {
        "name",
        "mode",
        "approval",
        "proposal_ttl_s",
        "action_ttl_s",
        "max_record_bytes",
        "accepted_clusters",
    },
    "topics": {"actions", "actions_dry_run", "audit", "dead_letter"},
    **dict.fromkeys(_WHOLE, True),
}


class NotReadable(Exception):
    """Another version kept these settings, and this one does not understand them."""


def keep(settings: Settings) -> dict[str, Any]:
    """The settings that shape a batch, as values for JSON."""
    kept: dict[str, Any] = TypeAdapter(Settings).dump_python(settings, mode="json", include=_KEPT)
    return kept


def kept_digest(settings: Settings) -> str:
    """SHA-256, in hexadecimal, of what ``keep`` returns."""
    text = json.dumps(keep(settings), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def restore(settings: Settings, tree: Mapping[str, Any]) -> Settings:
    """These settings with the kept ones in place of their own; raises ``NotReadable``."""
    try:
        deciding = compose({name: tree[name] for name in _WHOLE})
        controller = replace(settings.controller, **tree["controller"])
        topics = replace(settings.topics, **tree["topics"])
    except SettingsError as error:
        raise NotReadable(error.in_one_line) from error
    except (KeyError, TypeError, ValueError) as error:
        raise NotReadable(str(error)) from error
    before = {name: getattr(deciding, name) for name in _WHOLE}
    return replace(settings, controller=controller, topics=topics, **before)


class AcceptedClusters:
    """The check of every event's cluster; picklable."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = tuple(patterns)
        self._accepts_every = "*" in self._patterns

    def refusal(self, cluster: str, event: Event) -> Rejection | None:
        """Why an event is refused. One that forgets a cluster is accepted: the memory of a refused name could not be deleted otherwise."""
        if self._accepts_every or (isinstance(event, Control) and event.data.forget):
            return None
        if any(fnmatchcase(cluster, pattern) for pattern in self._patterns):
            return None
        return Rejection(
            reason="unknown-cluster",
            detail=f"cluster {cluster} matches no entry of controller.accepted_clusters "
            f"({', '.join(self._patterns)[:200]}): add it there, or correct the name at the sender",
        )


EVERY_CLUSTER = AcceptedClusters(("*",))
