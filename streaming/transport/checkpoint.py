"""What lies in a checkpoint, what it says of itself, and whether this trimtab with these settings may go on with it.

A checkpoint holds a directory for each start, with the manifest that makes it count and Spark's logs of batches.
``streaming.spark.checkpoint`` makes and deletes these directories. Nothing here changes a checkpoint or needs Spark: a start and
``trimtab doctor`` judge by the same rules.
"""

import os
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

import msgspec

from policies.wording import digits
from state.closing import UNBOUNDED, MemoryStart
from state.events import System
from state.layouts import FRESH, VERSION, NewerStateError, OlderStateError, refuse_version
from state.systems import rounds_of
from streaming.settings import Settings
from streaming.settings.identity import keep, kept_digest
from streaming.transport.errors import CheckpointError
from streaming.transport.publishing import Checkpoint
from streaming.transport.side import Place, Progress

MANIFEST = "trimtab.json"
CLAIM = "claim"
"""File of the process that works in a start's directory; it is made before everything else there."""
PROBE = ".trimtab-probe-"
"""Beginning of the names of the files with which a start tests the store; a start that was killed may leave some."""
PROBE_BYTES = 1024 * 1024
"""More than the last free block of a disk that is almost full, and quickly written."""
_NAME = re.compile(r"start-(\d+)")


def place_of(location: str) -> str:
    """The place of a checkpoint on its machine, whatever directory it is named from; a URL is as it is."""
    return location if urlsplit(location).scheme else str(Path(location).absolute())


def path_of(location: str) -> Path | None:
    """The path of a checkpoint on this machine; None for a store elsewhere."""
    parts = urlsplit(location)
    if parts.scheme not in {"", "file"}:
        return None
    return Path(unquote(parts.path) if parts.scheme else location)


def nearest_of(path: Path) -> Path:
    """What is there of a path: itself, or where the missing rest of it would be made."""
    return next(each for each in (path.absolute(), *path.absolute().parents) if os.access(each, os.F_OK))


def is_full(location: str) -> bool:
    """Whether the disk of a checkpoint on this machine is full; a store elsewhere is not asked."""
    path = path_of(location)
    with suppress(OSError):
        return path is not None and shutil.disk_usage(nearest_of(path)).free < PROBE_BYTES
    return False


class Listing(Protocol):
    """Files below a root. Names are relative to it; "" is the root itself."""

    def exists(self, name: str) -> bool:
        """Whether there is a file or a directory of this name."""

    def names(self, name: str = "") -> list[str]:
        """Names of what a directory holds; empty where there is none."""

    def read(self, name: str) -> bytes | None:
        """The contents of a file; None where there is no such file."""


@dataclass(frozen=True, slots=True, order=True)
class Start:
    """The directory of a start; epoch 0 is the checkpoint itself."""

    epoch: int

    @property
    def directory(self) -> str:
        """Its name below the checkpoint."""
        return f"start-{self.epoch}" if self.epoch else ""

    def file(self, *names: str) -> str:
        """The name of something in it."""
        return "/".join(filter(None, (self.directory, *names)))


def is_start(name: str) -> bool:
    """Whether something in the checkpoint is the directory of a start."""
    return _NAME.fullmatch(name) is not None


def all_starts(files: Listing) -> list[Start]:
    """The checkpoint itself, and the directories in it, whether they count or not."""
    matches = [_NAME.fullmatch(name) for name in files.names()]
    return [Start(0), *(Start(int(name[1])) for name in matches if name is not None)]


def newest_start(files: Listing) -> Start | None:
    """The newest start that counts, which is one with a manifest; None where there is none."""
    return max((start for start in all_starts(files) if files.exists(start.file(MANIFEST))), default=None)


def newest_number(files: Listing, start: Start, log: str) -> int | None:
    """The highest batch in one of Spark's logs, ``offsets`` or ``commits``."""
    names = files.names(start.file(log))
    return max((int(name) for name in names if name.isdecimal()), default=None)


_SYSTEMS: tuple[System, ...] = ("pulsar", "kafka")


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of ``trimtab.json``."""

    controller: str
    memory_version: int
    length_s: float
    """Length of a Pulsar cluster's round, unless the cluster is named below."""
    cluster_length_s: dict[str, float]
    memory_start: MemoryStart
    """It stays the same as long as starts go on with this checkpoint."""
    trimtab_version: str
    """The version that wrote last."""
    spark_version: str
    settings: dict[str, dict[str, Any]]
    """By digest, the settings of this start and those with which an already published batch may have to run again."""
    kafka_length_s: float
    """The same as ``length_s`` for Kafka clusters."""
    kafka_cluster_length_s: dict[str, float]
    topic_ids: dict[str, str]
    """Ids of the input's topics on Kafka."""

    def lengths_of(self, system: System) -> tuple[float, dict[str, float]]:
        """Length of a system's rounds in seconds, and by cluster where it differs."""
        if system == "kafka":
            return self.kafka_length_s, self.kafka_cluster_length_s
        return self.length_s, self.cluster_length_s


def manifest_of(
    settings: Settings,
    topic_ids: Mapping[str, str] = MappingProxyType({}),
    memory_start: MemoryStart = UNBOUNDED,
) -> Manifest:
    """The manifest of a checkpoint written under these settings, from topics with these ids."""
    pulsar_s, pulsar_clusters_s = _lengths(settings, "pulsar")
    kafka_s, kafka_clusters_s = _lengths(settings, "kafka")
    return Manifest(
        controller=settings.controller.name,
        memory_version=VERSION,
        length_s=pulsar_s,
        cluster_length_s=pulsar_clusters_s,
        memory_start=memory_start,
        trimtab_version=version("trimtab"),
        spark_version=version("pyspark"),
        settings={kept_digest(settings): keep(settings)},
        kafka_length_s=kafka_s,
        kafka_cluster_length_s=kafka_clusters_s,
        topic_ids=dict(topic_ids),
    )


def _lengths(settings: Settings, system: System) -> tuple[float, dict[str, float]]:
    default = rounds_of(system, settings).length_s
    lengths_s = {
        name: rounds_of(system, section).length_s for name, section in sorted(settings.clusters.items())
    }
    return default, {name: length_s for name, length_s in lengths_s.items() if length_s != default}


def read_manifest(files: Listing, location: str, start: Start) -> Manifest:
    """The manifest of a start. Raises ``CheckpointError``."""
    name = start.file(MANIFEST)
    try:
        return msgspec.json.decode(files.read(name) or b"", type=Manifest)
    except msgspec.MsgspecError as error:
        raise CheckpointError(
            f"{location}/{name} cannot be read ({error}): start over with {FRESH}"
        ) from error


def read_query(files: Listing, location: str, start: Start) -> Checkpoint:
    """The id of the start's query, and how far it got. Raises ``CheckpointError``."""
    name = start.file("metadata")
    text = files.read(name)
    try:
        query_id = None if text is None else str(msgspec.json.decode(text)["id"])
    except (msgspec.MsgspecError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{location}/{name} cannot be read ({error!r}): start over with {FRESH}"
        ) from error
    newest = newest_number(files, start, "offsets")
    return Checkpoint(query_id=query_id, last_batch_id=newest, epoch=start.epoch, location=place_of(location))


def refuse_strangers(files: Listing, location: str) -> None:
    """Raise ``CheckpointError`` for a directory that holds something else: trimtab must not write into it."""
    if any(not (is_start(name) or name.startswith(PROBE)) for name in files.names()):
        raise CheckpointError(
            f"{location} is not empty and is not a checkpoint of trimtab (it has no {MANIFEST}): "
            f"set spark.checkpoint to a directory of its own"
        )


def refuse_other_manifests(location: str, stored: Manifest, wanted: Manifest) -> None:
    """Raise ``CheckpointError`` for the checkpoint of another version, controller, input or length of rounds."""
    try:
        refuse_version(stored.memory_version, location)
    except (NewerStateError, OlderStateError) as error:
        raise CheckpointError(str(error)) from error
    refuse_other_controller(location, stored, wanted.controller)
    problem = describe_exchanged(stored.topic_ids, wanted.topic_ids)
    if problem is not None:
        raise CheckpointError(f"{location}: {problem}")
    for system in _SYSTEMS:
        _refuse_other_lengths(location, system, stored, wanted)


def refuse_other_controller(location: str, stored: Manifest, name: str) -> None:
    """Raise ``CheckpointError`` for the checkpoint of a controller of another name."""
    if stored.controller != name:
        raise CheckpointError(
            f"{location} belongs to the controller {stored.controller!r}, this one is {name!r}: "
            f"set controller.name back, or give this controller its own spark.checkpoint and [topics]"
        )


def _refuse_other_lengths(location: str, system: System, stored: Manifest, wanted: Manifest) -> None:
    was_s, own_before = stored.lengths_of(system)
    is_s, own_now = wanted.lengths_of(system)
    for cluster in ["", *sorted({*own_before, *own_now})]:
        before, now = own_before.get(cluster, was_s), own_now.get(cluster, is_s)
        if before != now:
            where = f"[clusters.{cluster}.{system}.rounds]" if cluster else f"[{system}.rounds]"
            raise CheckpointError(
                f"{location} holds rounds of {digits(before)} s, the settings say length_s = {digits(now)} in {where}: "
                f"set it back, or start over with {FRESH}"
            )


def describe_exchanged(before: Mapping[str, str], now: Mapping[str, str]) -> str | None:
    """The message about topics that were deleted and made anew; None where all are the same, or where it cannot be known."""
    names = sorted(name for name in before.keys() & now.keys() if before[name] != now[name])
    if not names:
        return None
    ids = ", ".join(f"{name} had the id {before[name]} and has {now[name]}" for name in names)
    return (
        f"the input was deleted and made anew since the checkpoint read it ({ids}): its records begin at 0 again, so "
        f"the checkpoint would skip records that were never read. Start over with {FRESH}"
    )


def read_offsets(files: Listing, start: Start, log: str) -> bytes | None:
    """The offsets file of the newest batch in one of Spark's logs; None before the first."""
    number = newest_number(files, start, log)
    return None if number is None else files.read(start.file("offsets", str(number)))


_HEAD_LINES = 2
_Source = dict[str, dict[str, int] | str]


class _Batch(msgspec.Struct, frozen=True):
    batchTimestampMs: int = 0  # noqa: N815  Spark's name


def decode_progress(text: bytes | None) -> Progress:
    """What an offsets file says; nothing where there is none. Raises ValueError if the text is not one."""
    if text is None:
        return Progress()
    lines = text.decode().splitlines()
    if len(lines) < _HEAD_LINES:
        raise ValueError(f"{len(text)} bytes without a line about the batch")
    try:
        planned_ms = msgspec.json.decode(lines[1], type=_Batch).batchTimestampMs
        sources = [msgspec.json.decode(line, type=_Source) for line in lines[2:] if line.startswith("{")]
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from error
    places = [place for source in sources for name, value in source.items() for place in _places(name, value)]
    return Progress(places, planned_ms)


def _places(name: str, value: dict[str, int] | str) -> list[Place]:
    if not isinstance(value, str):
        return [Place(name, int(number), name, str(offset)) for number, offset in value.items()]
    topic, mark, number = name.rpartition("-partition-")
    is_numbered = bool(mark) and number.isdigit()
    return [Place(topic, int(number), name, value) if is_numbered else Place(name, 0, name, value)]
