"""The settings that shape the outputs of a batch: kept in the checkpoint's card, to run one batch with them again.

Secrets and addresses are left out: they may change between two runs of a batch without changing its outputs.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from streaming.settings.reader import compose
from streaming.settings.tree import Settings

_CONTROLLER = (
    "name",
    "mode",
    "approval",
    "proposal_ttl_s",
    "action_ttl_s",
    "max_record_bytes",
    "accepted_clusters",
)
_TOPICS = ("actions", "actions_dry_run", "audit", "dead_letter")
_WHOLE = ("pulsar", "kafka", "clusters")


class NotReadable(Exception):
    """Another version kept these settings, and this one does not understand them."""


def keep(settings: Settings) -> dict[str, Any]:
    """The settings that shape a batch, as values for JSON."""
    tree = settings.model_dump(mode="json", include={"controller", "topics", *_WHOLE})
    controller, topics = tree.pop("controller"), tree.pop("topics")
    return {
        "controller": {name: controller[name] for name in _CONTROLLER},
        "topics": {name: topics[name] for name in _TOPICS},
        **tree,
    }


def kept_digest(settings: Settings) -> str:
    """SHA-256, in hexadecimal, of what ``keep`` returns."""
    text = json.dumps(keep(settings), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def restore(settings: Settings, tree: Mapping[str, Any]) -> Settings:
    """These settings with the kept ones in place of their own; raises ``NotReadable``."""
    try:
        deciding = compose({name: tree[name] for name in _WHOLE})
        controller = dataclasses.replace(settings.controller, **tree["controller"])
        topics = dataclasses.replace(settings.topics, **tree["topics"])
    except (KeyError, TypeError, ValueError) as error:
        raise NotReadable(str(error)) from error
    before = {name: getattr(deciding, name) for name in _WHOLE}
    return settings.model_copy(update={"controller": controller, "topics": topics, **before})
