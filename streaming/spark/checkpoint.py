"""The query's checkpoint, seen from outside: whose it is, how far it got, and whether this trimtab may go on with it.

Beside Spark's own files lies ``trimtab.json``: controller, memory version, round lengths, and who wrote last. It is written
before the first batch, and before the first batch of another trimtab or Spark, so that an older one refuses before it has
written anything. All access goes through Hadoop's file systems, so a directory and an object store are treated alike.
"""

from importlib.metadata import version

import msgspec
import pyspark
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from state.layouts import VERSION, NewerStateError, OlderStateError, refuse_version
from streaming.settings import Settings

_CARD = "trimtab.json"


class CheckpointError(Exception):
    """The checkpoint cannot be used; the text says why and what to do."""


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """What ``trimtab.json`` says."""

    controller: str
    memory_version: int
    length_s: float
    """Length of a round, unless the cluster is named below."""
    cluster_length_s: dict[str, float]
    trimtab_version: str = ""
    """Who wrote last; empty on a card from before that was noted."""
    spark_version: str = ""


def card_of(settings: Settings) -> Card:
    """The card of a checkpoint written under these settings."""
    default = settings.pulsar.rounds.length_s
    own = {name: section.pulsar.rounds.length_s for name, section in settings.clusters.items()}
    return Card(
        controller=settings.controller.name,
        memory_version=VERSION,
        length_s=default,
        cluster_length_s={name: length_s for name, length_s in sorted(own.items()) if length_s != default},
        trimtab_version=version("trimtab"),
        spark_version=pyspark.__version__,
    )


class CheckpointDirectory:
    """A checkpoint directory or URL."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        jvm = spark._jvm  # noqa: SLF001  pyspark has no public way to Hadoop's file systems
        assert jvm is not None, "a classic Spark session has a JVM"
        self.location = location
        self._jvm = jvm
        try:
            path = jvm.org.apache.hadoop.fs.Path(location)
            self._fs = path.getFileSystem(spark._jsc.hadoopConfiguration())  # noqa: SLF001
            self._root = self._fs.makeQualified(path)
        except Py4JJavaError as error:
            raise self._unusable(error) from error

    @property
    def is_local(self) -> bool:
        """Whether it lies on a file system of this machine."""
        return str(self._root.toUri().getScheme()) == "file"

    def prepare(self, settings: Settings, *, fresh: bool) -> None:
        """Make sure it is this controller's, writable, and fits the settings; ``fresh`` moves an old one aside.

        Raises CheckpointError.
        """
        try:
            if fresh:
                self._move_aside()
            found, wanted = self._read_card(), card_of(settings)
            if found is None:
                self._refuse_strangers()
            else:
                self._compare(found, wanted)
            if found != wanted:
                self._write_card(wanted)
        except Py4JJavaError as error:
            raise self._unusable(error) from error

    def query_id(self) -> str | None:
        """Id of the query it belongs to; None before the first start."""
        text = self._read("metadata")
        return None if text is None else str(msgspec.json.decode(text)["id"])

    def last_batch_id(self) -> int | None:
        """Newest batch that was planned; None before the first."""
        offsets = self._path("offsets")
        if not self._fs.exists(offsets):
            return None
        names = [str(status.getPath().getName()) for status in self._fs.listStatus(offsets)]
        return max((int(name) for name in names if name.isdecimal()), default=None)

    def _path(self, name: str) -> object:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, name)

    def _read(self, name: str) -> bytes | None:
        path = self._path(name)
        if not self._fs.exists(path):
            return None
        stream = self._fs.open(path)
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def _read_card(self) -> Card | None:
        text = self._read(_CARD)
        if text is None:
            return None
        try:
            return msgspec.json.decode(text, type=Card)
        except msgspec.MsgspecError as error:
            raise CheckpointError(
                f"{self.location}/{_CARD} cannot be read ({error}): start over with --fresh"
            ) from error

    def _write_card(self, card: Card) -> None:
        self._fs.mkdirs(self._root)
        stream = self._fs.create(self._path(_CARD), True)
        try:
            stream.write(msgspec.json.encode(card))
        finally:
            stream.close()

    def _refuse_strangers(self) -> None:
        """A directory that holds something else is not ours to write into."""
        if self._fs.exists(self._root) and self._fs.listStatus(self._root):
            raise CheckpointError(
                f"{self.location} is not empty and no checkpoint of trimtab (it has no {_CARD}): "
                f"set spark.checkpoint to a directory of its own"
            )

    def _compare(self, found: Card, wanted: Card) -> None:
        try:
            refuse_version(found.memory_version, self.location)
        except (NewerStateError, OlderStateError) as error:
            raise CheckpointError(str(error)) from error
        if found.controller != wanted.controller:
            raise CheckpointError(
                f"{self.location} belongs to the controller {found.controller!r}, this one is {wanted.controller!r}: "
                f"set controller.name back, or give this controller its own spark.checkpoint"
            )
        for cluster in ["", *sorted({*found.cluster_length_s, *wanted.cluster_length_s})]:
            before = found.cluster_length_s.get(cluster, found.length_s)
            now = wanted.cluster_length_s.get(cluster, wanted.length_s)
            if before != now:
                where = f" of cluster {cluster}" if cluster else ""
                raise CheckpointError(
                    f"{self.location} holds rounds{where} of {before:g} s, the settings say length_s = {now:g}: "
                    f"set it back, or start over with --fresh"
                )

    def _move_aside(self) -> None:
        if not self._fs.exists(self._root) or not self._fs.listStatus(self._root):
            return
        number = 1
        while self._fs.exists(aside := self._root.suffix(f".replaced-{number}")):
            number += 1
        if not self._fs.rename(self._root, aside):
            raise CheckpointError(f"{self.location} could not be renamed to {aside}: move it away by hand")

    def _unusable(self, error: Py4JJavaError) -> CheckpointError:
        cause = str(error.java_exception.toString())
        return CheckpointError(
            f"the checkpoint {self.location} cannot be read or written ({cause}): "
            f"check the path and its permissions, or set spark.checkpoint"
        )
