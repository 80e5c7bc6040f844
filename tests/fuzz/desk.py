"""Takes records as the live operator does, a batch at a time, and checks all that a user may rely on."""

import json
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from jsonschema import Draft202012Validator

from state.closing import Identity
from state.controller import Controller
from state.outputs import Output, RoundSummary, Split, Throttle, Unload
from state.settings import SettingsSource
from state.store import DictStore
from streaming.contract.encode import RefusedRecord, encode, encode_refused
from streaming.controller.published import decode as decode_published
from streaming.transport.intake import (
    Intake,
    Record,
    decode_observation,
    encode_observation,
    event_observation,
)
from tests.fuzz.traffic import Traffic

SCHEMAS = Path(__file__).parents[2] / "docs/reference/schemas"
SOURCE = "/trimtab/fuzz"
MAX_RECORD_BYTES = 1024 * 1024
MAX_OUTPUT_BYTES = 1_000_000
"""Below what a topic takes unless it is told otherwise."""
MAX_STORED_BYTES = 4_000_000
"""Of one cluster: this fleet is small, and what is wrong must not make it large."""
_DATA: dict[str, type[msgspec.Struct]] = {
    "trimtab.round.v1": RoundSummary,
    "trimtab.action.unload.v1": Unload,
    "trimtab.action.split.v1": Split,
    "trimtab.action.throttle.v1": Throttle,
}
_VALIDATED = 0.002
"""Share of the outputs that are checked against their JSON Schema; all are against their types."""


@cache
def _validator(type_: str) -> Draft202012Validator:
    return Draft202012Validator(json.loads((SCHEMAS / f"{type_}.schema.json").read_text()))


def _no_constant(name: str) -> Any:
    raise AssertionError(f"{name} is no JSON")


@dataclass
class Desk:
    """Clusters with their stores, and how many records went in and came out."""

    settings: SettingsSource
    random: Random
    stores: dict[str, DictStore] = field(default_factory=dict)
    controllers: dict[str, Controller] = field(default_factory=dict)
    taken_count: int = 0
    outputs_count: Counter[str] = field(default_factory=Counter)
    results: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    is_noted: bool = False
    """Whether what is found is noted rather than failed on."""
    notes: list[tuple[str, bytes]] = field(default_factory=list)

    def run(self, traffic: Traffic, count: int) -> None:
        """Take ``count`` records in batches of any size, the last rounds included."""
        while self.taken_count < count:
            size = min(self.random.choice((1, 5, 50, 500)), count - self.taken_count)
            self._batch(list(traffic.records(size)), traffic)
        self._finish()

    def _controller(self, cluster: str) -> Controller:
        if cluster not in self.controllers:
            store = self.stores.setdefault(cluster, DictStore())
            self.controllers[cluster] = Controller(
                cluster, store, identity=Identity(mode="act"), settings=self.settings
            )
        return self.controllers[cluster]

    def _batch(self, records: list[Record], traffic: Traffic) -> None:
        intake = Intake(self._controller, max_record_bytes=MAX_RECORD_BYTES)
        for record in records:
            outputs, refused = intake.take(record)
            self.taken_count += 1
            traffic.hear(outputs)
            for output in outputs:
                self._check(output, record)
            if refused is not None:
                self._check_refused(refused, record)
        self._count(intake)
        for cluster, controller in self.controllers.items():
            controller.commit()
            self._check_stored(cluster)
        self.controllers = {}

    def _finish(self) -> None:
        intake = Intake(self._controller, max_record_bytes=MAX_RECORD_BYTES)
        for cluster in sorted(self.stores):
            for output in intake.close_open(cluster):
                self._check(output, None)
        self._count(intake)
        assert sum(self.results.values()) == self.taken_count, "every record ends once"

    def _count(self, intake: Intake) -> None:
        for (cluster, _, result), count in intake.tally.results.items():
            assert result in {"used", "superseded", "late", "rejected"}
            assert cluster != "" or result == "rejected"
            self.results[result] += count
        self.reasons += Counter(intake.tally.reasons)
        decode_observation(encode_observation(event_observation("", intake.tally)))

    def _check(self, output: Output, record: Record | None) -> None:
        self.outputs_count[output.type] += 1
        value = encode(output, SOURCE)
        data = decode_published(value).data
        if isinstance(data, RoundSummary):
            self.outcomes[data.outcome] += 1
            if data.outcome == "internal-error":
                self._fault(data.reason, record)
        data = msgspec.json.decode(value)["data"]
        msgspec.convert(data, _DATA[output.type], strict=True)
        self._check_value(output.type, value)

    def _check_refused(self, refused: RefusedRecord, record: Record) -> None:
        self.outputs_count["trimtab.rejected.v1"] += 1
        if refused.rejection.reason == "internal-error":
            self._fault(refused.rejection.detail, record)
        assert len(refused.rejection.detail) <= 2000
        self._check_value("trimtab.rejected.v1", encode_refused(refused, SOURCE))

    def _fault(self, what: str, record: Record | None) -> None:
        value = b"" if record is None else record.value or b""
        assert self.is_noted, f"{what} at record {self.taken_count}: {value[:2000]!r}"
        self.notes.append((what, value))

    def _check_value(self, type_: str, value: bytes) -> None:
        assert len(value) <= MAX_OUTPUT_BYTES, (type_, len(value))
        if self.random.random() < _VALIDATED:
            _validator(type_).validate(json.loads(value, parse_constant=_no_constant))

    def _check_stored(self, cluster: str) -> None:
        store = self.stores[cluster]
        waiting = sum(len(value) for _, value in store.all_waiting())
        size = len(store.header() or b"") + len(store.fleet() or b"") + waiting
        assert size <= MAX_STORED_BYTES, (cluster, size)
