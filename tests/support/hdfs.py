"""A real HDFS on loopback, a NameNode and a DataNode in one JVM, from Hadoop's published mini cluster; for the tests.

    with LocalHdfs(Path("/tmp/h")) as hdfs:
        checkpoint = f"{hdfs.url}/checkpoint"

On Linux it does not outlive the process that started it. Its data is gone when it is started again.
"""

import atexit
import os
import subprocess
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Self

from deploy.local.processes import LOCKS, answers, end_of, free_ports, spawn
from streaming.process.deadline import poll
from streaming.spark.jars import ensure, find_java

HDFS_LOCK = LOCKS / "hdfs.lock"
"""Hadoop's mini cluster of the version that pyspark has, and the parts of JUnit and Mockito that its class for tests needs."""
READY_TIMEOUT_S = 90.0
"""It needs 6 s on an idle machine."""
STOP_TIMEOUT_S = 20.0
_POLL_S = 0.1


class LocalHdfsError(RuntimeError):
    """It did not start; the text has the end of its log."""


class LocalHdfs:
    """Everything lies in the directory given; the port is chosen at the start."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._log = directory / "hdfs.log"
        (self._port,) = free_ports(1)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """``hdfs://host:port``."""
        return f"hdfs://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        """Returns when files can be written. Raises ``LocalHdfsError``."""
        self._directory.mkdir(parents=True, exist_ok=True)
        ready = self._directory / "site.xml"
        self._process = spawn([*self._java(), *self._arguments(ready)], self._log)
        atexit.register(self.kill)
        # the file is written once the DataNode is registered
        if not poll(lambda: self._is_ready(ready), timeout_s=READY_TIMEOUT_S, pause_s=_POLL_S):
            self.kill()
            raise LocalHdfsError(f"HDFS at {self.url} is not ready:\n{end_of(self._log)}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def kill(self) -> None:
        """End it at once."""
        atexit.unregister(self.kill)
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(STOP_TIMEOUT_S)

    def _is_ready(self, ready: Path) -> bool:
        if self._process is not None and self._process.poll() is not None:
            raise LocalHdfsError(f"HDFS ended:\n{end_of(self._log)}")
        return ready.exists() and answers(self._port)

    def _java(self) -> list[str]:
        pyspark = find_spec("pyspark")
        assert pyspark is not None
        assert pyspark.origin is not None
        clients = Path(pyspark.origin).parent / "jars" / "*"
        jars = os.pathsep.join([*map(str, ensure(HDFS_LOCK)), str(clients)])
        data = f"-Dtest.build.data={self._directory / 'data'}"
        return [str(find_java()), "-Xmx256m", "-XX:+UseSerialGC", data, "-cp", jars]

    def _arguments(self, ready: Path) -> list[str]:
        options = ["-format", "-datanodes", "1", "-nnport", str(self._port), "-writeConfig", str(ready)]
        return ["org.apache.hadoop.test.MiniDFSClusterManager", *options]
