"""Whether a checkpoint may be in its store: what the store must promise is tested on the store itself at every start.

A start goes on in a directory of its own (``starts``), which it claims with a file that no other process has made. So the store
has to refuse to create a file that exists, also if two processes create it at the same moment; and it has to show a file whole,
under one name, as soon as it is written. HDFS, local disks and NFS do so, and object stores with conditional writes. Any other
store is refused before a controller is fenced.
"""

from pathlib import Path
from uuid import uuid4

from py4j.protocol import Py4JJavaError

from streaming.spark.files import Files
from streaming.transport.checkpoint import PROBE

_MOUNTS = Path("/proc/mounts")
_OBJECT_STORE_MOUNTS = frozenset(
    {"blobfuse", "blobfuse2", "gcsfuse", "goofys", "mount-s3", "mountpoint-s3", "rclone", "s3fs"}
)
"""Object stores mounted as directories: two machines do not see each other's files at once, and a rename is a copy. s3fs-fuse's README
names both among its limitations."""
_INSTEAD = (
    "Set spark.checkpoint to HDFS, a disk, NFS, or the URL of an object store with conditional writes "
    "(docs/scaling.md, Where the checkpoint may be)"
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
            best = max(best, (len(at.parts), source, kind), key=lambda each: each[0])
    found = {best[1], best[2].removeprefix("fuse.")} & _OBJECT_STORE_MOUNTS
    return min(found, default=None)
