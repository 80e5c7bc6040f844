"""What the log says about published outputs: a line per action, and a line when what is in force changes.

With ``-v`` there is a line per round, too. Each line carries cluster, round and, where it has one, the action's id as fields.
"""

import logging
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from state.outputs import RoundSummary
from streaming.controller.published import Published
from streaming.settings.reference import toml_value

_LOG = logging.getLogger("trimtab.published")


class _InForce(NamedTuple):
    """What an operator may change for a cluster."""

    mode: str
    paused: bool
    policy: str
    settings: Mapping[str, Any]


class OutputLog:
    """Remembers what was in force in the last round of each cluster."""

    def __init__(self) -> None:
        self._in_force: dict[str, _InForce] = {}

    def forget(self, cluster: str) -> None:
        """Forget a cluster that is gone."""
        self._in_force.pop(cluster, None)

    def log(self, event: Published) -> None:
        """Log one published output."""
        data = event.data
        about = {"cluster": data.cluster, "round": data.round}
        if isinstance(data, RoundSummary):
            self._log_changes(data, about)
            text = "%s, round %d: %s, %d actions: %s"
            _LOG.debug(
                text, data.cluster, data.round, data.outcome, data.actions_count, data.reason, extra=about
            )
        else:
            about["action_id"] = event.id
            shown = " (dry-run)" if data.dry_run else ""
            text = "%s, round %d: %s %s%s: %s"
            _LOG.info(text, data.cluster, data.round, event.type, event.id, shown, data.reason, extra=about)

    def _log_changes(self, data: RoundSummary, about: Mapping[str, Any]) -> None:
        now = _InForce(data.mode, data.paused, data.policy, data.settings_by_name())
        before = self._in_force.get(data.cluster)
        self._in_force[data.cluster] = now
        changes = [] if before is None else list(_changes(before, now))
        if changes:
            who = "" if data.control is None else f" ({data.control.who}: {data.control.why})"
            _LOG.info(
                "%s, round %d: in force from now on: %s%s",
                data.cluster,
                data.round,
                ", ".join(changes),
                who,
                extra=about,
            )


def _changes(before: _InForce, now: _InForce) -> Iterator[str]:
    if now.mode != before.mode:
        yield f"mode {now.mode}, was {before.mode}"
    if now.paused != before.paused:
        yield "paused" if now.paused else "no pause"
    if now.policy != before.policy:
        yield f"policy {now.policy}, was {before.policy}"
    for name in sorted(before.settings.keys() | now.settings.keys()):
        old, new = _show_value(before.settings, name), _show_value(now.settings, name)
        if old != new:
            yield f"{name} = {new}, was {old}"


def _show_value(settings: Mapping[str, Any], name: str) -> str:
    return toml_value(settings[name]) if name in settings else "the default"
