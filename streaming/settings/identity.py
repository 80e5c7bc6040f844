"""The part of the settings that a cluster's controller is started with."""

from dataclasses import replace

from state.closing import Identity
from streaming.settings import Settings

PULSAR_ACTION_BYTES = 5_000_000
"""Largest action for an output on Pulsar: its brokers accept 5 MiB (``maxMessageSize``), envelope included."""


def identity_of(settings: Settings) -> Identity:
    """What a controller with these settings is started with."""
    controller = settings.controller
    identity = Identity(
        mode=controller.mode,
        action_ttl_s=controller.action_ttl_s,
        approval=controller.approval,
        proposal_ttl_s=controller.proposal_ttl_s,
    )
    return replace(identity, max_action_bytes=PULSAR_ACTION_BYTES) if settings.output_is_pulsar else identity
