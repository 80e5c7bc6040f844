"""A real standalone Spark cluster on loopback: one master, some workers of one core each, from pyspark's own classes.

The worker processes inherit our environment, so an executor's Python finds the code where the driver's does; on
several machines the package has to be installed at the same path on each.
"""

import os
import signal
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import pyspark

from deploy.local.processes import free_ports
from tests.support.processes import Child, Member, ask, members, until

_SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
_HOST = "127.0.0.1"
_EXECUTOR = "CoarseGrainedExecutorBackend"
_PYTHON = "pyspark.daemon"


SETTINGS = """
[spark.extra]
"spark.driver.host" = "127.0.0.1"
"spark.driver.bindAddress" = "127.0.0.1"
"spark.executor.memory" = "512m"
"spark.executor.cores" = "1"
"spark.cores.max" = "2"
"spark.scheduler.minRegisteredResourcesRatio" = "1.0"
"""
"""For the application: one executor on each of two workers, both there before the first batch, everything on loopback."""


class Standalone:
    """Started by entering; `url` is what `--master` takes."""

    def __init__(self, directory: Path, *, workers_count: int = 2) -> None:
        self._directory = directory
        self._workers_count = workers_count
        self._stack = ExitStack()
        self.url = ""
        self.workers: list[Child] = []

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="trimtab-spark-")))
            port, page = free_ports(2)
            self.url = f"spark://{_HOST}:{port}"
            master = stack.enter_context(self._start("master", "master.Master", port=port, page=page))
            master.until(lambda: "I have been elected leader" in master.output, "the master")
            self.workers = [
                stack.enter_context(self._start_worker(number, scratch))
                for number in range(self._workers_count)
            ]
            until(
                lambda: (
                    ask(f"http://{_HOST}:{page}/json/").body.count('"state" : "ALIVE"') == self._workers_count
                ),
                what="all workers to register",
                running=[master, *self.workers],
            )
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def executors(self) -> list[Member | None]:
        """The executor's JVM on each worker; None where there is none."""
        return [_one_with(_EXECUTOR, worker) for worker in self.workers]

    def is_deciding_everywhere(self) -> bool:
        """Whether Python runs on every worker, which it does only where the operator had a cluster to decide on."""
        return all(_one_with(_PYTHON, worker) is not None for worker in self.workers)

    def kill_executor(self, worker: int) -> int:
        """`kill -9` the executor of a worker; returns its pid."""
        found = self.executors()[worker]
        assert found is not None, f"worker {worker} has no executor"
        os.kill(found.pid, signal.SIGKILL)
        return found.pid

    def _start_worker(self, number: int, scratch: Path) -> Child:
        port, page = free_ports(2)
        work = scratch / f"worker-{number}"
        options = (self.url, "--cores", "1", "--memory", "1g", "--work-dir", str(work))
        return self._start(f"worker-{number}", "worker.Worker", *options, port=port, page=page)

    def _start(self, name: str, kind: str, *options: str, port: int, page: int) -> Child:
        at = ("--host", _HOST, "--port", str(port), "--webui-port", str(page))
        small = ("env", "SPARK_DAEMON_MEMORY=192m", f"SPARK_LOCAL_IP={_HOST}")
        command = (*small, str(_SPARK_CLASS), f"org.apache.spark.deploy.{kind}", *at, *options)
        return Child(command, self._directory / f"{name}.log")


def _one_with(text: str, worker: Child) -> Member | None:
    """A process of the worker's session whose command line names something."""
    return next((each for each in members(worker.process.pid) if text in _command_line(each)), None)


def _command_line(process: Member) -> str:
    try:
        return Path(f"/proc/{process.pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:  # it ended while we looked
        return ""
