"""The types of what a controller publishes, as CloudEvents name them; ``streaming.contract.published`` has their envelopes."""

ACTION_PREFIX = "trimtab.action."
"""How the types of all actions begin."""
UNLOAD_TYPE = "trimtab.action.unload.v1"
SPLIT_TYPE = "trimtab.action.split.v1"
THROTTLE_TYPE = "trimtab.action.throttle.v1"
ROUND_TYPE = "trimtab.round.v1"
