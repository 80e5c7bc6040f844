"""The open loop: what a candidate decides on what was recorded; nothing that it decides has an effect."""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from state.closing import Identity
from state.controller import Controller
from state.events import ActionResult, Control
from state.outputs import Output, RoundSummary, Split, Unload
from state.outputs.actions import ROUND_TYPE, SPLIT_TYPE, UNLOAD_TYPE
from state.settings import SettingsSource
from state.store import DictStore
from streaming.simulator.backtest.reading import Read

_MOST_ROWS = 25
"""How many pairs and bundles of a round are kept to say why nothing was done: the heaviest."""
_UNLOAD, _SPLIT = msgspec.json.Decoder(Unload), msgspec.json.Decoder(Split)
_SUMMARY = msgspec.json.Decoder(RoundSummary)


class Act(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """An action that was decided; two candidates decide the same one if all but the reason is equal."""

    kind: str
    """`unload` or `split`."""
    bundle: str
    source: str
    """Broker that has the bundle."""
    destination: str | None
    """Broker it goes to; null where Pulsar chooses, and for a split."""
    reason: str

    @property
    def key(self) -> tuple[str, str, str | None]:
        """What is done, whatever the reason."""
        return (self.kind, self.bundle, self.destination)


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """A round's reasons for what it did not do."""

    reason: str
    """Reason of the round."""
    pairs: list[tuple[str, str]]
    """The broker that would shed, and the outcome with its numbers."""
    bundles: list[tuple[str, str]]
    """A bundle, and its outcome with what caused it."""


class OpenRound(msgspec.Struct, frozen=True, kw_only=True):
    """A round of a candidate."""

    end_ms: int
    acts: list[Act]
    packed_why: bytes

    @staticmethod
    def pack(reason: str, pairs: list[tuple[str, str]], bundles: list[tuple[str, str]]) -> bytes:
        """A ``Why`` as it is kept: a month has tens of thousands of rounds."""
        return zlib.compress(msgspec.msgpack.encode(Why(reason=reason, pairs=pairs, bundles=bundles)), 1)

    def unpack_reasons(self) -> Why:
        """The reasons, unpacked."""
        return _WHY.decode(zlib.decompress(self.packed_why))


_WHY = msgspec.msgpack.Decoder(Why)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenJob:
    """One candidate on one recorded cluster."""

    read: Read
    cluster: str
    name: str
    identity: Identity
    settings: SettingsSource


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """What a candidate decided."""

    cluster: str
    candidate: str
    rounds: list[OpenRound]
    rejected_count: int
    """Events that its controller refused."""


def play_open(job: OpenJob) -> Opened:
    """Decide on the recording from the first event to the last, including the round that it leaves open."""
    controller = Controller(job.cluster, DictStore(), identity=job.identity, settings=job.settings)
    rounds: list[OpenRound] = []
    rejected_count = 0
    for cluster, event in job.read():
        if cluster != job.cluster or isinstance(event, Control | ActionResult):
            continue
        step = controller.step(event)
        rejected_count += step.rejection is not None
        rounds += _rounds(step.outputs)
    rounds += _rounds(controller.close_open())
    return Opened(cluster=job.cluster, candidate=job.name, rounds=rounds, rejected_count=rejected_count)


def _rounds(outputs: list[Output]) -> Iterator[OpenRound]:
    acts: list[Act] = []
    for output in outputs:
        if output.type == UNLOAD_TYPE:
            unload = _UNLOAD.decode(output.data)
            acts.append(
                Act(
                    kind="unload",
                    bundle=unload.bundle,
                    source=unload.source_broker,
                    destination=unload.destination_broker,
                    reason=unload.reason,
                )
            )
        elif output.type == SPLIT_TYPE:
            cut = _SPLIT.decode(output.data)
            acts.append(
                Act(kind="split", bundle=cut.bundle, source=cut.broker, destination=None, reason=cut.reason)
            )
        elif output.type == ROUND_TYPE:
            yield OpenRound(
                end_ms=output.time_ms, acts=acts, packed_why=_pack_reasons(_SUMMARY.decode(output.data))
            )
            acts = []


def _pack_reasons(summary: RoundSummary) -> bytes:
    return OpenRound.pack(
        summary.reason,
        [(each.high_broker, each.detail) for each in summary.examined.heaviest[:_MOST_ROWS]],
        [(each.bundle, each.detail) for each in summary.candidates.heaviest[:_MOST_ROWS]],
    )
