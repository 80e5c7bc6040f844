"""The files below a directory or URL, through Hadoop's file systems, and whether a store keeps what a checkpoint needs.

Names are relative to the root; "" is the root itself. Every method of ``Files`` raises ``Py4JJavaError`` or ``OSError``.

A start goes on in a directory of its own (``checkpoint``), which it claims with a file that no other process has made. So the store
has to refuse to create a file that exists, also if two processes create it at the same moment; and it has to show a file whole,
under one name, as soon as it is written. HDFS, local disks and NFS do so, and object stores with conditional writes. Every start tests
this on the store itself, and refuses any other store before it fences a controller.
"""

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from streaming.transport.checkpoint import PROBE

_CONDITIONAL = "fs.option.create.conditional.overwrite"
"""Option of Hadoop's ``createFile`` (HADOOP-19256). A file system without it does not need it, or fails ``creates_exclusively``."""
_COPIES_AT_ONCE = 16
"""A copy takes ten requests, an object store answers each after some tens of milliseconds, and a checkpoint has 200 files."""


class Files:
    """The files below ``location``."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        jvm = spark._jvm  # noqa: SLF001  pyspark has no public way to Hadoop's file systems
        assert jvm is not None, "a classic Spark session has a JVM"
        self._jvm = jvm
        self._conf = spark._jsc.hadoopConfiguration()  # noqa: SLF001
        path = jvm.org.apache.hadoop.fs.Path(location)
        self._fs = path.getFileSystem(self._conf)
        self._root = self._fs.makeQualified(path)

    @property
    def is_local(self) -> bool:
        """Whether it is on a file system of this machine."""
        return self._scheme == "file"

    @property
    def suits_plain_files(self) -> bool:
        """Whether Spark can do without Hadoop's ``FileContext``: on a disk, and on S3, where ``FileContext`` only doubles the requests."""
        return self._scheme in ("file", "s3a")

    @property
    def _scheme(self) -> str:
        return str(self._root.toUri().getScheme())

    def address(self, name: str) -> str:
        """The whole path or URL."""
        return str(self._path(name).toString())

    def exists(self, name: str) -> bool:
        return bool(self._fs.exists(self._path(name)))

    def names(self, name: str = "") -> list[str]:
        """What a directory holds; nothing where there is none."""
        if not self.exists(name):
            return []
        return [str(status.getPath().getName()) for status in self._fs.listStatus(self._path(name))]

    def read(self, name: str) -> bytes | None:
        """The content of a file; None where there is no such file."""
        if not self.exists(name):
            return None
        stream = self._fs.open(self._path(name))
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def write(self, name: str, content: bytes) -> None:
        """Make or replace a file, with the directories above it."""
        stream = self._fs.create(self._path(name), True)
        try:
            stream.write(content)
        finally:
            stream.close()

    def write_whole(self, name: str, content: bytes) -> None:
        """Make a file that is not there yet: whole, or not at all if we are killed meanwhile."""
        part = f"{name}.part"
        self.write(part, content)
        if not self.rename(part, name):
            raise OSError(f"{self.address(part)} could not be renamed to {name}")

    def write_new(self, name: str, content: bytes) -> None:
        """Make a file with the directories above it; raises ``FileExistsError`` if another process has made it, even just now."""
        if self.is_local:
            disk = self.disk(name)
            disk.parent.mkdir(parents=True, exist_ok=True)
            with disk.open("xb") as made:  # Hadoop looks first and creates afterwards
                made.write(content)
            return
        try:
            stream = self._create_alone(name)
            stream.write(content)
            stream.close()
        except Py4JJavaError as error:
            if self.exists(name):
                raise FileExistsError(f"{self.address(name)} was made by another process") from error
            raise

    def creates_exclusively(self, name: str) -> bool:
        """Whether the store lets only one of two processes create a file, if they do so at the same moment."""
        if self.is_local:
            self.write_new(name, b"first")
            try:
                self.write_new(name, b"second")
            except FileExistsError:
                return True
            return False
        first = self._create_alone(name)
        try:
            second = self._create_alone(name)
        except Py4JJavaError:
            return True
        finally:
            first.close()  # fails where the store refuses conditional writes altogether
        try:
            second.close()
        except Py4JJavaError:
            return True
        return False

    def _create_alone(self, name: str) -> JavaObject:
        """A stream to a new file, by a conditional write: a store that shows files only once they are closed refuses at that point."""
        builder = self._fs.createFile(self._path(name))
        return builder.overwrite(False).recursive().opt(_CONDITIONAL, True).build()

    def rename(self, name: str, to: str) -> bool:
        """Give a file another name; False if the file system did not do it."""
        return bool(self._fs.rename(self._path(name), self._path(to)))

    def copy(self, name: str, to: str) -> None:
        """Copy a file, or a directory with all files below it, several files at once.

        On a disk it does not use Hadoop, which starts a process for every file to set its permissions.
        """
        if self.is_local:
            _copy(self.disk(name), self.disk(to))
            return
        here = len(self.address(name))
        statuses = list(self._statuses(name))
        names = [f"{to}{str(status.getPath().toString())[here:]}" for status in statuses]
        with ThreadPoolExecutor(_COPIES_AT_ONCE) as pool:
            list(pool.map(self._copy_file, statuses, names))

    def _statuses(self, name: str) -> Iterator[JavaObject]:
        """Hadoop's status of a file, or of all files below a directory."""
        statuses = self._fs.listFiles(self._path(name), True)
        while statuses.hasNext():
            yield statuses.next()

    def _copy_file(self, status: JavaObject, to: str) -> None:
        copy = self._jvm.org.apache.hadoop.fs.FileUtil.copy
        if not copy(self._fs, status, self._fs, self._path(to), False, True, self._conf):
            raise OSError(f"{status.getPath().toString()} could not be copied to {self.address(to)}")

    def delete(self, name: str) -> None:
        """Delete a file, or a directory with all below it, if it is there."""
        self._fs.delete(self._path(name), True)

    def rename_root(self, suffix: str) -> bool:
        """Add a suffix to the root's name; False if the file system did not do it."""
        return bool(self._fs.rename(self._root, self._root.suffix(suffix)))

    def is_beside(self, suffix: str) -> bool:
        """Whether something has the root's name with this suffix."""
        return bool(self._fs.exists(self._root.suffix(suffix)))

    @contextmanager
    def root_for_now(self) -> Iterator[None]:
        """Where there is no root's directory, make it for the block; what was made and is empty in the end is deleted."""
        made, path = [], self._root
        while path is not None and not self._fs.exists(path):
            made.append(path)
            path = path.getParent()
        try:
            self._fs.mkdirs(self._root)
            yield
        finally:
            with suppress(Py4JJavaError):  # another process has begun to use it
                for directory in made:
                    self._fs.delete(directory, False)

    def _path(self, name: str) -> JavaObject:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, name) if name else self._root

    def disk(self, name: str) -> Path:
        """The path of something on a file system of this machine."""
        return Path(str(self._path(name).toUri().getPath()))


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    for name in (source.name, f".{source.name}.crc"):  # the checksum that Hadoop keeps beside it
        if source.with_name(name).exists():
            shutil.copy2(source.with_name(name), target.with_name(name))


_MOUNTS = Path("/proc/mounts")
_OBJECT_STORE_MOUNTS = frozenset(
    {"blobfuse", "blobfuse2", "gcsfuse", "goofys", "mount-s3", "mountpoint-s3", "rclone", "s3fs"}
)
"""Object stores mounted as directories: two machines do not see each other's files at once, and a rename is a copy. s3fs-fuse's README
names both among its limitations."""
_INSTEAD = (
    "Set spark.checkpoint to HDFS, a disk, NFS, or the URL of an object store with conditional writes "
    "(docs/run/scaling.md, Where the checkpoint may be)"
)


class UnsafeStore(Exception):
    """The store breaks a promise; the text says which, and what to do."""


def require_promises(files: Files) -> None:
    """Test the store, and leave nothing behind. Raises ``UnsafeStore``, and what ``files`` raises."""
    if files.is_local:
        mount = unsafe_mount(files.disk(""), _MOUNTS.read_text() if _MOUNTS.exists() else "")
        if mount is not None:
            raise UnsafeStore(
                f"it lies on a mount of {mount}, which does not guarantee what a checkpoint needs. {_INSTEAD}"
            )
    probe = f"{PROBE}{uuid4().hex}"
    renamed = f"{probe}-renamed"
    try:
        broken = _find_broken_promise(files, probe, renamed)
    finally:
        for name in (probe, renamed):
            files.delete(name)
    if broken is not None:
        raise UnsafeStore(f"its store {broken}. {_INSTEAD}")


def _find_broken_promise(files: Files, probe: str, renamed: str) -> str | None:
    content = probe.encode()
    files.write(probe, content)
    if probe not in files.names() or files.read(probe) != content:
        return "does not show a file that was just written"
    try:
        is_exclusive = files.creates_exclusively(renamed)
    except Py4JJavaError as error:  # a plain write has just worked
        answer = str(error.java_exception.toString()).partition("\n")[0]
        return f"cannot create a file on the condition that it does not exist ({answer})"
    if not is_exclusive:
        return "lets two processes create the same file at the same moment"
    files.delete(renamed)
    if not files.rename(probe, renamed):
        return "does not rename a file"
    if files.exists(probe) or files.read(renamed) != content:
        return "does not show a renamed file complete, and only under its new name"
    return None


def unsafe_mount(path: Path, mounts: str) -> str | None:
    """The mount that a path of this machine is on, by the lines of ``/proc/mounts``, if it is unfit for a checkpoint; else None."""
    resolved = path.resolve()
    best: tuple[int, str, str] = (-1, "", "")
    for line in mounts.splitlines():
        source, point, kind, *_ = line.split()
        at = Path(point.replace("\\040", " "))
        if resolved.is_relative_to(at):
            best = max(best, (len(at.parts), source, kind), key=lambda mount: mount[0])
    unfit = {best[1], best[2].removeprefix("fuse.")} & _OBJECT_STORE_MOUNTS
    return min(unfit, default=None)
