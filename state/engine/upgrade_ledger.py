"""Upgrade of the header's layout from version 2 (trimtab 0.1.0) to version 3: eight fields about decisions become a ledger.

Version 2 kept the newest unload and split of each bundle, the unloads of the last hour by number, what children inherit, the
actions whose effect is looked for, the verdicts, the actions without effect, and the bundles that leave. What belongs to one
decision is found by its action id; what has no id any more becomes a decision of its own, which answers the same questions.
Values are as msgpack has them: lists, dicts and plain values, by position.
"""

from typing import Any

_FIELDS = (
    "id",
    "kind",
    "bundle",
    "source",
    "destination",
    "children",
    "decided_ms",
    "expires_ms",
    "until_ms",
    "dry_run",
    "is_watched",
    "is_leaving",
    "is_resting",
    "result",
    "succeeded_ms",
    "rounds_count",
    "verdict",
    "traffic",
    "before",
)
"""Fields of a decision in version 3."""


_LISTED: tuple[Any, ...] = ({}, {}, True)
"""Last fields of a verdict: version 2 has no loads, and its summaries have been published."""


class _Decisions:
    """The decisions found so far, by id where they have one."""

    def __init__(self) -> None:
        self.all: list[dict[str, Any]] = []
        self._by_id: dict[str, dict[str, Any]] = {}

    def add(self, action_id: str, kind: str, bundle: str, decided_ms: int) -> dict[str, Any]:
        found = dict.fromkeys(_FIELDS)
        found |= {"id": action_id, "kind": kind, "bundle": bundle, "source": "", "children": [], "before": {}}
        found |= {
            "decided_ms": decided_ms,
            "expires_ms": decided_ms,
            "until_ms": decided_ms,
            "rounds_count": 0,
        }
        found |= dict.fromkeys(("dry_run", "is_watched", "is_leaving", "is_resting"), False)
        self.all.append(found)
        self._by_id.setdefault(action_id, found)
        return found

    def of(self, action_id: str, kind: str, bundle: str, decided_ms: int) -> dict[str, Any]:
        """The decision with that id about that bundle; a new one if there is none."""
        found = self._by_id.get(action_id)
        if found is None or found["kind"] != kind or bundle not in ("", found["bundle"]):
            return self.add(action_id, kind, bundle, decided_ms)
        return found


def with_ledger(header: list[Any]) -> list[Any]:
    """A header of version 3 from one of version 2."""
    actions, unloads, splits, inheritances, trials, verdicts, ineffective, failing_since_ms = header[11:19]
    found = _Decisions()
    for action_id, (
        kind,
        bundle,
        source,
        destination,
        children,
        *times,
        succeeded_ms,
        rounds_count,
    ) in trials.items():
        each = found.add(action_id, kind, bundle, times[0])
        each |= {"source": source, "destination": destination, "until_ms": times[1], "is_watched": True}
        each |= {"children": [[name, None, None] for name in children]}
        each |= {"succeeded_ms": succeeded_ms, "rounds_count": rounds_count}
    _add_resting(found, "unload", actions)
    _add_resting(found, "split", splits)
    for bundle, (action_id, source, until_ms, dry_run) in header[23].items():
        each = found.of(action_id, "unload", bundle, until_ms)
        each |= {"source": source, "until_ms": until_ms, "dry_run": dry_run, "is_leaving": True}
    _add_children(found, inheritances)
    for ended_ms, count, dry_run in unloads:
        known = [each for each in found.all if (each["kind"], each["decided_ms"]) == ("unload", ended_ms)]
        for _ in range(count - len(known)):
            found.add("", "unload", "", ended_ms)["dry_run"] = dry_run
    _add_verdicts(found, verdicts, ineffective)
    decisions = sorted(found.all, key=lambda each: each["decided_ms"])
    ledger = [[list(each.values()) for each in decisions], failing_since_ms]
    return [*header[:11], ledger, *header[19:23], *header[24:]]


def _add_resting(found: _Decisions, kind: str, actions: dict[str, Any]) -> None:
    """The newest decisions of bundles; a child of a split that is known rests with it."""
    children = {(each["id"], child[0]) for each in found.all for child in each["children"]}
    for bundle, (action_id, decided_ms, expires_ms, dry_run, in_flight, failed) in actions.items():
        if (action_id, bundle) in children:
            continue
        each = found.of(action_id, kind, bundle, decided_ms)
        each |= {"decided_ms": decided_ms, "expires_ms": expires_ms, "dry_run": dry_run, "is_resting": True}
        if not in_flight:
            ended = "skipped" if each["succeeded_ms"] is None else "succeeded"
            each["result"] = "failed" if failed else ended


def _add_children(found: _Decisions, inheritances: dict[str, Any]) -> None:
    for bundle, (until_ms, children) in inheritances.items():
        owners = [each for each in found.all if (each["kind"], each["bundle"]) == ("split", bundle)]
        each = owners[-1] if owners else found.add("", "split", bundle, until_ms)
        each["until_ms"] = until_ms
        each["children"] = [list(child) for child in children] or each["children"]


def _add_verdicts(found: _Decisions, verdicts: list[Any], ineffective: dict[str, Any]) -> None:
    for action_id, kind, outcome, judged_ms in verdicts:
        found.of(action_id, kind, "", judged_ms)["verdict"] = [outcome, judged_ms, "", 0, *_LISTED]
    for bundle, (kind, broker, judged_ms, rounds_count) in ineffective.items():
        same = [
            each
            for each in found.all
            if each["verdict"] == ["ineffective", judged_ms, "", 0, *_LISTED]
            and each["bundle"] in ("", bundle)
        ]
        each = same[0] if same else found.add("", kind, bundle, judged_ms)
        each |= {"bundle": bundle, "verdict": ["ineffective", judged_ms, broker, rounds_count, *_LISTED]}
