"""Every wait has a limit: code that waits for a thread, a process, a broker or a server sets for how long at most.

The tests read the source and find calls that wait without limit by default, and endless loops that do not look at a
deadline. ``ALLOWED`` lists what needs no limit, with the reason; the tests also find an entry that is not needed any more.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("policies", "state", "streaming", "deploy")

SILENT = frozenset(
    {
        "acquire", "awaitAnyTermination", "awaitTermination", "communicate", "get", "join", "processAllAvailable", "result",
        "shutdown", "wait",
    }
)  # fmt: skip
"""Methods of threads, futures, queues, processes and queries that wait without limit if they get no argument."""
BOUNDED_BY = {
    ("", "as_completed"): "timeout",
    ("", "wait"): "timeout",
    ("socket", "create_connection"): "timeout",
    ("subprocess", "call"): "timeout",
    ("subprocess", "check_call"): "timeout",
    ("subprocess", "check_output"): "timeout",
    ("subprocess", "run"): "timeout",
    ("httpx", "Client"): "timeout",
    ("httpx", "get"): "timeout",
    ("httpx", "stream"): "timeout",
    ("request", "urlopen"): "timeout",
    ("producer", "flush"): "timeout",
    ("consumer", "committed"): "timeout_ms",
    ("consumer", "position"): "timeout_ms",
    ("consumer", "receive"): "timeout_millis",
    ("reader", "read_next"): "timeout_millis",
    ("log", "read_next"): "timeout_millis",
    ("consumer", "partitions_for_topic"): "streaming.process.deadline",
    ("consumer", "topics"): "streaming.process.deadline",
}
"""(Last name of the object, function) → what limits the call: an argument of this name, or that it is made inside ``within``."""
MAY_WAIT = SILENT | {name for _, name in BOUNDED_BY}
BOUNDS = ("deadline", "left_ms", "left_s", "timeout")
"""Names in an endless loop that show that it looks at a limit."""

ALLOWED = {
    "streaming/collector/pulsar.py::PulsarCollector._read_facts::with ThreadPoolExecutor": "each call has a timeout; in a daemon thread",
    "streaming/executor/loop.py::ActionLoop.run::with ThreadPoolExecutor": "what a batch waits for has limits; see liveness",
    "streaming/spark/files.py::Files.copy::with ThreadPoolExecutor": "Hadoop's clients give up a request after a while, as in any other call",
    "streaming/spark/session.py::Start.connect::with ThreadPoolExecutor": "another thread may cancel the start",
    "streaming/spark/session.py::Start.connect::result()": "the same",
    "streaming/spark/jars.py::ensure::with ThreadPoolExecutor": "sums of files on this machine",
    "deploy/local/kafka.py::LocalKafka.configure::with ThreadPoolExecutor": "each process has a limit",
    "deploy/local/processes.py::JavaCluster.stop::with ThreadPoolExecutor": "each process has a limit",
    "streaming/executor/pulsar.py::ExecutorLoop.close::shutdown()": "each call of an action has a timeout, and its checks have a limit",
    "streaming/executor/pulsar.py::ExecutorLoop._deal_with::wait": "the same; liveness notices a batch that does not move on",
    "streaming/pulsar/log.py::_varint::while True": "bytes in memory",
    "streaming/cli/status.py::status_command::while True": "watches until it is interrupted; each reading has a limit",
    "streaming/process/serve.py::HealthServer.stop::shutdown()": "waits for one look of the serving loop, requests have threads of their own",
    "streaming/spark/operator.py::SparkStore.header::get()": "Spark's state; the watchdog notices a batch that does not move on",
    "streaming/spark/operator.py::SparkStore.fleet::get()": "the same",
    "streaming/process/stop_signals.py::stopped_by_signals.listen::get()": "a daemon that waits for signals for as long as the process lives",
    "streaming/planner/throttle_cluster.py::_measure::wait": "sleeps for the interval it is given",
    "streaming/cli/facts.py::gather_facts::with ThreadPoolExecutor": "each look has a limit, `attempt`",
    "streaming/cli/facts.py::gather_facts::result()": "the same",
    "streaming/simulator/runs.py::_end_with_parent.end::join()": "a daemon that waits for the end of the program",
    "streaming/simulator/runs.py::play_all::as_completed": "runs as long as the simulation takes; a person watches",
    "streaming/simulator/runs.py::play_all::result()": "the same: the run has ended",
    "deploy/local/watch.py::main::while True": "runs until Ctrl-C, in steps",
}
"""``file::function::what`` → why it needs no limit."""


@dataclass(frozen=True, slots=True)
class Wait:
    """A place in the source that may wait forever."""

    file: str
    function: str
    what: str
    line: int

    @property
    def key(self) -> str:
        return f"{self.file}::{self.function}::{self.what}"


def waits_of(file: str, text: str) -> Iterator[Wait]:
    """All waits without a limit in a file."""
    yield from _waits(file, ast.parse(text), "")


def _waits(file: str, node: ast.AST, function: str) -> Iterator[Wait]:
    for child in ast.iter_child_nodes(node):
        inside = function
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            inside = f"{function}.{child.name}".lstrip(".")
        if isinstance(child, ast.Call) and getattr(child.func, "id", "") == "within":
            continue
        what = _call(child) if isinstance(child, ast.Call) else _pool(child) or _loop(child, file)
        if what is not None:
            yield Wait(file, function, what, child.lineno)
        yield from _waits(file, child, inside)


def _call(call: ast.Call) -> str | None:
    called = call.func
    if getattr(called, "attr", getattr(called, "id", "")) not in MAY_WAIT:
        return None
    *owners, name = ast.unparse(called).rpartition(".")
    owner = owners[0].rpartition(".")[2].lstrip("_").removesuffix("()")
    given = {each.arg for each in call.keywords}
    if owners[0] and name in SILENT and not call.args and not given:
        return f"{name}()"
    limits = [limit for (of, named), limit in BOUNDED_BY.items() if (of, named) == (owner, name)]
    return name if limits and not given & {*limits, None} else None


def _pool(node: ast.AST) -> str | None:
    """A thread pool's block: its end waits for everything that was submitted."""
    opened = [ast.unparse(item.context_expr) for item in node.items] if isinstance(node, ast.With) else []
    return (
        "with ThreadPoolExecutor" if any(each.startswith("ThreadPoolExecutor(") for each in opened) else None
    )


def _loop(node: ast.AST, file: str) -> str | None:
    """An endless loop; ``policies`` and ``state`` are left out, as nothing can wait there."""
    if not isinstance(node, ast.While) or file.startswith(("policies/", "state/")):
        return None
    asked = ast.unparse(node.test)
    is_endless = (
        isinstance(node.test, ast.Constant) or "has_message_available" in asked or ".position(" in asked
    )
    is_bounded = any(word in ast.unparse(node) for word in BOUNDS)
    return f"while {asked}" if is_endless and not is_bounded else None


def found() -> list[Wait]:
    return [
        wait
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        for wait in waits_of(str(path.relative_to(ROOT)), path.read_text())
    ]


def test_nothing_waits_without_a_limit():
    unbounded = [
        f"{each.file}:{each.line} in {each.function}: {each.what}"
        for each in found()
        if each.key not in ALLOWED
    ]
    assert not unbounded, "\n".join(
        ["say how long at most (streaming.process.deadline does for any call), or why not:", *unbounded]
    )


def test_every_exception_is_still_needed():
    assert set(ALLOWED) == {each.key for each in found()} & set(ALLOWED)
    assert all(ALLOWED.values())


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("thread.join()", "join()"),
        ("thread.join(5)", None),
        ("', '.join(names)", None),
        ("event.wait()", "wait()"),
        ("event.wait(timeout=5)", None),
        ("wait(futures)", "wait"),
        ("wait(futures, timeout=5)", None),
        ("future.result()", "result()"),
        ("queue.get()", "get()"),
        ("found.get(key)", None),
        ("self._producer.flush()", "flush"),
        ("file.flush()", None),
        ("subprocess.run(command)", "run"),
        ("subprocess.run(command, timeout=60)", None),
        ("loop.run(once=True)", None),
        ("httpx.Client(verify=True)", "Client"),
        ("httpx.Client(timeout=5)", None),
        ("urllib.request.urlopen(url)", "urlopen"),
        ("reader.read_next()", "read_next"),
        ("reader.read_next(timeout_millis=5)", None),
        ("consumer.position(at)", "position"),
        ("consumer.position(at, timeout_ms=5)", None),
        ("self._consumer.partitions_for_topic(topic)", "partitions_for_topic"),
        ("within(5, lambda: consumer.partitions_for_topic(topic), what='')", None),
        ("with ThreadPoolExecutor(4) as pool:\n    pool.map(f, x)", "with ThreadPoolExecutor"),
        ("while True:\n    time.sleep(1)", "while True"),
        ("while True:\n    if time.monotonic() > deadline_s:\n        break", None),
    ],
)
def test_a_wait_without_a_limit_is_found_and_one_with_a_limit_is_not(source: str, what: str | None):
    assert [each.what for each in waits_of("a.py", source)] == ([] if what is None else [what])
