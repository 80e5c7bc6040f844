"""Plays a scenario and writes it anew, with the whole output below each event.

A scenario begins with comments and settings (``trimtab.toml``, up to a line of dashes). Below each event stand, two
spaces in: how it and the events it settled were counted, the record it was refused as, and each output, drawn from its
JSON. Lines of comment and empty lines are kept.

What an output has in common with every other one, or with a round in which nothing happened, is left out (``QUIET``, ``UNDISTURBED``,
``PLAIN_ROW``, ``STANDING``), so that what happened is seen; everything else is there. The id of an action is the number of the action: ``#3``.
"""

import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from state.controller import Controller
from state.outputs import Output
from state.store import DictStore
from streaming.contract.encode import Origin, RefusedRecord, encode, encode_refused
from streaming.settings import ClusterSettingsSource, Settings, load
from streaming.settings.identity import identity_of
from streaming.transport.intake import Intake, Record
from tests.scenarios.script import event_of

RULE = "---"
SOURCE = "/trimtab/trimtab"
_ENVELOPE = {"specversion": "1.0", "source": SOURCE, "datacontenttype": "application/json"}
_EMPTY = {"count": 0, "outcomes": {}, "heaviest": []}
QUIET: dict[str, object] = {
    "actions": [],
    "actions_count": 0,
    "brokers": [],
    "brokers_asked": [],
    "brokers_excluded": [],
    "brokers_failed": {},
    "brokers_missing": [],
    "brokers_missing_count": 0,
    "candidates": _EMPTY,
    "control": None,
    "examined": _EMPTY,
    "failing_since": None,
    "findings": _EMPTY,
    "gap_rounds": 0,
    "last_actions": {},
    "other_balancers": None,
    "paused": False,
    "resources": {},
    "restarted": False,
    "splits": _EMPTY,
    "throttle": None,
    "usage": None,
}
"""Fields of the summary of a round in which nothing happened."""
UNDISTURBED: dict[str, object] = {
    "broken_count": 0,
    "changed_rates_bytes_per_s": {},
    "eta_observed_high_s": None,
    "eta_observed_low_s": None,
    "failures_count": 0,
    "feasible": True,
    "held_over_count": 0,
    "late": False,
    "lost_follower_throttled_replicas": {},
    "lost_leader_throttled_replicas": {},
    "others_follower_throttled_replicas": {},
    "others_leader_throttled_replicas": {},
    "others_rates_bytes_per_s": {},
    "retry_at": None,
    "unknown": [],
    "unknown_count": 0,
    "violations": [],
}
"""Fields of the section about a throttle that nothing and nobody disturbs."""
STANDING = ("mode", "policy", "settings", "settings_digest", "system")
"""Fields of a summary that are shown in the first one of a cluster, and whenever they change."""
PLAIN_ROW: dict[str, object] = {"excluded": False, "group": None}
"""Columns of a row about a broker, pair or bundle that nothing sets apart from others."""


def play(text: str) -> str:
    """The scenario with its outputs as they are now."""
    head, _, body = text.partition(f"{RULE}\n")
    stage = _Stage(head)
    lines: list[str] = []
    for line in body.splitlines():
        if line.startswith("  "):
            continue
        lines.append(line)
        if not line:
            stage.begin_block()
        elif not line.startswith("#"):
            lines += [f"  {output}" for output in stage.take(line)]
    return "\n".join([f"{head}{RULE}", *lines]) + "\n"


def _settings(toml: str, flags: dict[str, object]) -> Settings:
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "trimtab.toml"
        file.write_text(toml, encoding="utf-8")
        return load(file=file, flags=flags, environ={}).settings


class _Stage:
    """Controllers, their stores, and what has been said so far."""

    def __init__(self, toml: str) -> None:
        self._toml = toml
        self._stores: dict[str, DictStore] = {}
        self._action_ids: list[str] = []
        self._standing: dict[str, dict[str, object]] = {}
        self._last: bytes | None = None
        self._lines = 0
        self._block: list[str] = []
        self._flags: dict[str, object] = {}
        self._start()

    def _start(self) -> None:
        self._settings = settings = _settings(self._toml, self._flags)
        self._controllers: dict[str, Controller] = {}
        self._intake = Intake(self._controller_of, max_record_bytes=settings.controller.max_record_bytes)
        self._counted: Counter[tuple[str, str, str]] = Counter()

    def _controller_of(self, cluster: str) -> Controller:
        if cluster not in self._controllers:
            self._controllers[cluster] = Controller(
                cluster,
                self._stores.setdefault(cluster, DictStore()),
                identity=identity_of(self._settings),
                settings=ClusterSettingsSource(self._settings),
            )
        return self._controllers[cluster]

    def take(self, line: str) -> list[str]:
        """What a line leads to, as lines."""
        word, _, rest = line.partition(" ")
        if word == "restart":
            return self._restart(rest)
        if word == "later":
            return self._later(float(rest))
        if word == "close":
            found = [
                output for cluster in sorted(self._controllers) for output in self._intake.close_open(cluster)
            ]
            return [*self._count(), *self._outputs(found)]
        self._lines += 1
        if word != "again":
            self._last = event_of(line, self._action_ids)
            if any(f" {word} " in f"{line} " for word in ("report", "logs", "moves")):
                self._block.append(line)
        origin = Origin(topic="scenario", partition=0, offset=self._lines)
        outputs, refused = self._intake.take(Record(value=self._last, origin=origin))
        return [*self._count(), *self._refused(refused), *self._outputs(outputs)]

    def begin_block(self) -> None:
        """An empty line: what ``later`` repeats begins below it."""
        self._block = []

    def _later(self, shift_s: float) -> list[str]:
        block, self._block = self._block, []
        return [output for line in block for output in self.take(_shifted(line, shift_s))]

    def _restart(self, flags: str) -> list[str]:
        for controller in self._controllers.values():
            controller.commit()
        self._flags.update(flag.split("=", 1) for flag in flags.split())
        self._start()
        return []

    def _count(self) -> Iterator[str]:
        now = self._intake.tally.results
        gained = now - self._counted
        self._counted = Counter(now)
        if gained:
            counts = (f"{count} {type_} {result}" for (_, type_, result), count in sorted(gained.items()))
            yield "counted: " + ", ".join(counts).replace("trimtab.", "").replace(".v1", "")

    def _outputs(self, outputs: list[Output]) -> Iterator[str]:
        for output in outputs:
            if output.kind == "action":
                self._action_ids.append(output.id)
            message = json.loads(self._numbered(encode(output, SOURCE)))
            data = message.pop("data")
            repeated = {"cluster": message["cluster"], "end": message["time"], "round": output.round}
            if output.kind == "action":
                number = f"#{len(self._action_ids)}"
                yield f"action {number}: {_flat(_without(message, _ENVELOPE | {'id': number}))}"
            else:
                envelope = _ENVELOPE | {"subject": "round", "id": output.id}
                yield f"round {output.round}: {_flat(_without(message, envelope))}"
                data = self._of_round(data)
            yield from (f"  {line}" for line in _drawn(_without(data, repeated)))

    def _of_round(self, data: dict[str, Any]) -> dict[str, object]:
        """What a summary says beyond that of a quiet round of the brokers that reported, and beyond the summary before."""
        counts = ("brokers_live_count", "brokers_reporting_count")
        common = QUIET | dict.fromkeys(counts, len(data["brokers_reporting"]))
        common["configured"] = data["configured"]  # the scenario begins with it
        standing = {name: data.get(name, {}) for name in STANDING}
        before = self._standing.get(data["cluster"], {})
        self._standing[data["cluster"]] = standing
        if data["throttle"]:
            data = data | {"throttle": _without(data["throttle"], UNDISTURBED)}
        return _without(data | standing, common | (before or {"settings": {}}))

    def _numbered(self, message: bytes) -> str:
        """The message with the number of an action wherever its id is mentioned."""
        text = message.decode()
        for number, id_ in enumerate(self._action_ids, 1):
            text = text.replace(id_, f"#{number}")
        return text

    def _refused(self, refused: RefusedRecord | None) -> Iterator[str]:
        if refused is not None:
            message = json.loads(self._numbered(encode_refused(refused, SOURCE)))
            yield f"rejected {message['subject']}: {message['data']['detail']}"


def _without(shown: dict[str, object], common: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in shown.items() if name not in common or common[name] != value}


def _shifted(line: str, shift_s: float) -> str:
    time, _, rest = line.partition(" ")
    return f"t={float(time.removeprefix('t=')) + shift_s:g} {rest}"


def _drawn(message: dict[str, object]) -> Iterator[str]:
    """An object as indented lines; flat ones on one line, lists of objects a line each."""
    for name, value in message.items():
        if isinstance(value, dict) and any(isinstance(inner, dict | list) for inner in value.values()):
            yield f"{name}:"
            yield from (f"  {line}" for line in _drawn(value))
        elif isinstance(value, list) and any(isinstance(inner, dict) for inner in value):
            yield f"{name}:"
            yield from (f"  - {_flat(_row(inner))}" for inner in value)
        else:
            yield f"{name}: {_flat(value)}"


def _row(row: object) -> object:
    """A row without what is plain, and without the resources that a broker does not measure."""
    if not isinstance(row, dict):
        return row
    shown = _without(row, PLAIN_ROW)
    resources = row.get("resources")
    if isinstance(resources, dict):
        shown["resources"] = _without(resources, dict.fromkeys(resources, "not-measured"))
    return shown


def _flat(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {_flat(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flat, value)) + "]"
    return value if isinstance(value, str) and value else json.dumps(value)
