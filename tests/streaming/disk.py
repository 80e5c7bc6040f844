"""A checkpoint directory on a disk, without a JVM, and the files that Spark and trimtab write there."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from streaming.spark.files import Files
from streaming.transport.checkpoint import MANIFEST, Start

SCHEMA = "/state/0/_stateSchema/default/0_a"


class Disk(Files):
    """A checkpoint directory on a local disk, without a JVM."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def is_local(self) -> bool:
        return True

    def disk(self, name: str) -> Path:
        return self.root / name

    def address(self, name: str) -> str:
        return f"file:{self.root / name}"

    @contextmanager
    def root_for_now(self) -> Iterator[None]:
        is_made = not self.root.exists()
        self.root.mkdir(exist_ok=True)
        yield
        if is_made:
            self.root.rmdir()

    def exists(self, name: str) -> bool:
        return (self.root / name).exists()

    def names(self, name: str = "") -> list[str]:
        return [path.name for path in (self.root / name).iterdir()] if self.exists(name) else []

    def read(self, name: str) -> bytes | None:
        return (self.root / name).read_bytes() if self.exists(name) else None

    def write(self, name: str, content: bytes) -> None:
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_bytes(content)

    def rename(self, name: str, to: str) -> bool:
        (self.root / name).rename(self.root / to)
        return True

    def copy(self, name: str, to: str) -> None:
        (self.root / to).parent.mkdir(parents=True, exist_ok=True)
        if (self.root / name).is_dir():
            shutil.copytree(self.root / name, self.root / to)
        else:
            shutil.copy2(self.root / name, self.root / to)

    def delete(self, name: str) -> None:
        if (self.root / name).is_dir():
            shutil.rmtree(self.root / name)
        else:
            (self.root / name).unlink(missing_ok=True)


def lay_out(disk: Disk, start: Start, *, planned: int, committed: int, manifest: bytes = b"manifest") -> None:
    """Write a checkpoint as Spark and trimtab do."""
    for number in range(planned + 1):
        disk.write(start.file("offsets", str(number)), b"")
    for number in range(committed + 1):
        disk.write(start.file("commits", str(number)), b"")
    disk.write(start.file("metadata"), b'{"id":"q"}')
    disk.write(start.file("sources", "0", "0"), b"")
    paths = f'{{"stateSchemaFilePaths":["file:/elsewhere/checkpoint{SCHEMA}"]}}'
    disk.write(start.file("state", "0", "_metadata", "v2", "0"), paths.encode())
    disk.write(start.file(SCHEMA[1:]), b"schema")
    disk.write(start.file(MANIFEST), manifest)
