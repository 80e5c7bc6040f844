"""A disk that can be filled."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

BYTES = 256 * 1024 * 1024


@contextmanager
def small_disk(place: Path) -> Iterator[Path | None]:
    """A file system of its own that can be filled; None where we may not mount one."""
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={BYTES}", "tmpfs", str(place)]
    if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        yield None
        return
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=False)
        shutil.rmtree(place, ignore_errors=True)


@contextmanager
def filled(disk: Path) -> Iterator[None]:
    """Nothing can be written to the disk inside the block."""
    filling = disk / "filling"
    try:
        with filling.open("wb", buffering=0) as file, suppress(OSError):
            while file.write(bytes(1024 * 1024)):
                pass
        yield
    finally:
        filling.unlink()
