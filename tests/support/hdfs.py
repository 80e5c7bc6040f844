"""A real HDFS on loopback, a NameNode and a DataNode in one JVM, from Hadoop's published mini cluster; for the tests.

    with LocalHdfs(Path("/tmp/h")) as hdfs:
        checkpoint = f"{hdfs.url}/checkpoint"

On Linux it does not outlive the process that started it. Its data is gone when it is started again.
"""

import os
import signal
from importlib.util import find_spec
from pathlib import Path

from deploy.local.processes import LOCKS, POLL_S, LocalError, Process, Server, answers, free_ports
from streaming.process.deadline import poll
from streaming.spark.jars import ensure, find_java

HDFS_LOCK = LOCKS / "hdfs.lock"
"""Hadoop's mini cluster of the version that pyspark has, and the parts of JUnit and Mockito that its class for tests needs."""
READY_TIMEOUT_S = 90.0
"""It needs 6 s on an idle machine."""


class LocalHdfs(Server):
    """Everything lies in the directory given; the port is chosen at the start."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        (self._port,) = free_ports(1)
        self._process = Process("HDFS", (), directory / "hdfs.log")

    @property
    def url(self) -> str:
        """``hdfs://host:port``."""
        return f"hdfs://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Return when files can be written."""
        self._directory.mkdir(parents=True, exist_ok=True)
        ready = self._directory / "site.xml"
        self._process.command = [*self._java(), *self._arguments(ready)]
        self._process.launch()
        if not poll(lambda: self._is_ready(ready), timeout_s=READY_TIMEOUT_S, pause_s=POLL_S):
            raise LocalError(f"HDFS at {self.url} is not ready; {self._process.log_end()}")

    def stop(self) -> None:
        """End it at once."""
        self._process.end(signal.SIGKILL)

    def check(self) -> None:
        self._process.check()

    def _is_ready(self, ready: Path) -> bool:
        """The file is written once the DataNode is registered."""
        self.check()
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
