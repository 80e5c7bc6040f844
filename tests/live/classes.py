"""Keeps the classes of Spark's JVM in a file: `python -m tests.live.classes FILE`.

Tests start that JVM again and again, and loading the same classes is half of what a start costs. This runs one controller
to its orderly end and keeps the classes it loaded (class data sharing, JEP 350). Without the file tests start more slowly,
and nothing else changes.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from deploy.local.kafka import LocalKafka
from tests.support.loads import closing, leaning
from tests.support.processes import QUICK_JVM, TRIMTAB, until
from tests.support.stage import replayed, staged

_TICKS = 6
_SPARK_BYTES = 50 * 1024 * 1024
"""The JVMs that only look for Java and build a command line leave files of 2 MB."""


def main(file: Path) -> None:
    """Write the archive to ``file``."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        _run_controller(directory)
        found = until(lambda: _complete(directory), what="the JVM to write its classes")
        shutil.copy(found, file)


def _run_controller(directory: Path) -> None:
    with LocalKafka(directory / "kafka", nodes=1) as kafka, staged(kafka.bootstrap, directory) as stage:
        config = stage.settings(spark__driver_memory="512m")
        events = [*(event for number in range(_TICKS) for event in leaning(number)), closing(_TICKS)]
        wanted = replayed(config, events)
        options = f"{QUICK_JVM} -XX:ArchiveClassesAtExit={directory}/classes-%p.jsa"
        run = subprocess.Popen(
            (*TRIMTAB, "run", "--config", str(config), "--from", "earliest"),
            env=os.environ | {"JAVA_TOOL_OPTIONS": options, "SPARK_LOCAL_DIRS": str(directory)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            stage.send(events)
            stage.wait_for_outputs(wanted)
        finally:
            run.send_signal(signal.SIGTERM)
            run.wait()


def _complete(directory: Path) -> Path | None:
    """The archive of the JVM that ran Spark, once no process writes to it; it outlives Python by some seconds."""
    large = [each for each in directory.glob("classes-*.jsa") if each.stat().st_size > _SPARK_BYTES]
    return next((each for each in large if not _is_open(each)), None)


def _is_open(file: Path) -> bool:
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(link.readlink() == file for link in (process / "fd").iterdir()):
                return True
        except OSError:  # it ended while we looked
            continue
    return False


if __name__ == "__main__":
    main(Path(sys.argv[1]))
