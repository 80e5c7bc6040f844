"""One run: a cluster, its traffic, one balancer, one scenario, and a row of figures."""

import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.local.demo.fleet import CLUSTER, Result
from deploy.local.demo.topics import Decided, Topics
from deploy.local.demo.trimtab import ROOT, Trimtab, members
from deploy.local.kafka import LocalKafka
from deploy.local.processes import LocalError, Process, Server, free_ports
from deploy.local.pulsar import NEWEST_PULSAR_LOCK, LocalPulsar
from policies.splitting.ranges import Bundle, position_of
from policies.wording import bytes_text
from streaming.process.deadline import poll
from streaming.pulsar.admin import PulsarAdmin
from streaming.pulsar.http import AdminError, HttpClient
from streaming.settings import PulsarTarget, load
from tests.compare.balancers import Balancer
from tests.compare.clients import FELT
from tests.compare.judging import judge, series
from tests.compare.scenarios import BUNDLES_PER_BROKER, NAMESPACE, TENANT, Scenario, Traffic, traffic_of
from tests.compare.watching import Watch
from tests.support.network import HOST, Network

CALM_S, WINDOW_S = 240.0, 480.0
"""How long the balancer sees a calm cluster before, and how long it is watched after what happens."""
RESTART_EVERY_S = 60.0
_TIMEOUT_S, _POLL_S = 120.0, 0.2
_DISK_BYTES = 10e9
"""A run writes up to 5 GB, and a bookie on a full disk takes no message."""
_LAST_RESULTS_S = 40.0
_BESIDE = ("nice", "-n", "10")
"""Trimtab runs on a machine of its own in production: here it may not take the processors from brokers and clients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Length:
    """How long the parts of a run take, in seconds."""

    calm_s: float = CALM_S
    window_s: float = WINDOW_S


def run(balancer: Balancer, scenario: Scenario, seed: int, length: Length, directory: Path) -> dict[str, Any]:
    """The row of one run. Raises ``LocalError`` where something does not start."""
    began_s = time.monotonic()
    if (free := shutil.disk_usage(directory).free) < _DISK_BYTES:
        raise LocalError(f"{directory}: {bytes_text(free)} are free, {bytes_text(_DISK_BYTES)} are needed")
    with ExitStack() as stack:
        network = stack.enter_context(Network(scenario.all_count))
        pulsar = LocalPulsar(
            directory / "pulsar",
            brokers=scenario.all_count,
            load_manager=balancer.load_manager,
            extra=balancer.broker_settings(),
            lock=NEWEST_PULSAR_LOCK,
            host=HOST,
            machines=network.machines,
        )
        kafka = LocalKafka(directory / "kafka")
        with ThreadPoolExecutor() as pool:
            servers: list[Server] = [pulsar, kafka] if balancer.policy else [pulsar]
            list(pool.map(stack.enter_context, servers))
        for number in range(scenario.brokers_count + 1, scenario.all_count + 1):
            pulsar.stop_broker(number)
        target = PulsarTarget(admin_url=pulsar.admin_url)
        admin = PulsarAdmin(HttpClient(target), target)
        with ThreadPoolExecutor() as pool:
            trimtab = pool.submit(_trimtab, stack, balancer, pulsar, kafka, directory)
            traffic = _placed(admin, pulsar, scenario, seed)
            programs, topics = trimtab.result()
        plan = _Plan(directory / "plan.json", pulsar, scenario, traffic, seed)
        clients = stack.enter_context(_clients(plan.file, directory))
        numbers = {pulsar.broker_id(number): number for number in range(1, scenario.all_count + 1)}
        watch = Watch(
            network=network,
            admin=admin,
            numbers=numbers,
            process_of=lambda number: _process_of(pulsar, number),
            messages_per_s=traffic.then_messages_per_s,
        )
        with watch:
            time.sleep(length.calm_s)
            watch.seen.happened_s = time.time()
            plan.write(traffic.then_messages_per_s, counts_from_s=watch.seen.happened_s)
            used_s = _cpu_s(programs)
            _happen(pulsar, scenario, watch.seen.happened_s + length.window_s)
            time.sleep(max(0.0, watch.seen.happened_s + length.window_s - time.time()))
            used_s = _cpu_s(programs) - used_s
        clients.end()
        felt = json.loads((directory / FELT).read_text())
        answered = _answered(topics)
    return {
        "balancer": balancer.name,
        "scenario": scenario.name,
        "seed": seed,
        "commit": _git("log", "-1", "--format=%h"),
        "on": time.strftime("%Y-%m-%d"),
        "machine": f"{os.cpu_count()} cores, Python {platform.python_version()}, Pulsar 4.2.4",
        "took_s": round(time.monotonic() - began_s),
        "window_s": round(length.window_s),
        **judge(watch.seen),
        **felt,
        "balancer_cpu_percent": round(100 * used_s / length.window_s, 1) if programs else None,
        **answered,
        "series": series(watch.seen),
    }


class _Plan:
    """What the clients are told, in a file that they read anew."""

    def __init__(
        self, file: Path, pulsar: LocalPulsar, scenario: Scenario, traffic: Traffic, seed: int
    ) -> None:
        self.file = file
        self._given = {
            "service_url": pulsar.service_url,
            "noise_ratio": scenario.noise_ratio,
            "seed": seed,
        }
        self.write(traffic.calm_messages_per_s, counts_from_s=None)

    def write(self, rates: Mapping[str, float], *, counts_from_s: float | None) -> None:
        """In one step, so that no half of it is read."""
        half = self.file.with_suffix(".half")
        half.write_text(json.dumps({**self._given, "messages_per_s": rates, "counts_from_s": counts_from_s}))
        half.replace(self.file)


@contextmanager
def _clients(plan: Path, directory: Path) -> Iterator[Process]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = (sys.executable, "-m", "tests.compare.clients", str(plan))
    clients = Process("clients", command, directory / "clients.log", environment)
    clients.launch()
    try:

        def is_done() -> bool:
            clients.check()
            return "connected" in clients.log.read_text()

        if not poll(is_done, timeout_s=_TIMEOUT_S, pause_s=_POLL_S):
            raise LocalError(f"the clients are not connected after {_TIMEOUT_S:g} s; {clients.log_end()}")
        yield clients
    finally:
        clients.end()


def _placed(admin: PulsarAdmin, pulsar: LocalPulsar, scenario: Scenario, seed: int) -> Traffic:
    """Make the namespace, and have each bundle at its broker."""
    body = {"allowedClusters": [pulsar.cluster], "adminRoles": []}
    admin.call("PUT", f"/admin/v2/tenants/{TENANT}", body=body)
    count = BUNDLES_PER_BROKER * scenario.brokers_count
    admin.call("PUT", f"/admin/v2/namespaces/{NAMESPACE}", body={"bundles": {"numBundles": count}})
    admin.call("POST", f"/admin/v2/namespaces/{NAMESPACE}/deduplication", body=True)
    bundles = admin.bundles(NAMESPACE)
    assert len(bundles) == count
    traffic = traffic_of(scenario, bundles, seed)
    for topic in traffic.calm_messages_per_s:
        admin.call("PUT", f"/admin/v2/persistent/{topic.removeprefix('persistent://')}")
    topics = {
        bundle: next(
            topic for topic in traffic.calm_messages_per_s if bundle.range.contains(position_of(topic))
        )
        for bundle in bundles
    }

    def place(bundle: Bundle) -> None:
        wanted = pulsar.broker_id(traffic.placement[bundle])

        def is_there() -> bool:
            try:
                owner = admin.lookup(topics[bundle])
                if owner is not None and owner != wanted:
                    admin.unload(bundle, destination=wanted)
            except AdminError:  # it is being unloaded
                return False
            return owner == wanted

        if not poll(is_there, timeout_s=_TIMEOUT_S, pause_s=_POLL_S):
            raise LocalError(f"{bundle} is not at {wanted} after {_TIMEOUT_S:g} s")

    with ThreadPoolExecutor(max_workers=4) as pool:
        list(pool.map(place, bundles))
    return traffic


def _trimtab(
    stack: ExitStack, balancer: Balancer, pulsar: LocalPulsar, kafka: LocalKafka, directory: Path
) -> tuple[list[Trimtab], Topics | None]:
    """Its controller, collector and executor, ready; nothing where it does not balance."""
    if balancer.policy is None:
        return [], None
    file = directory / "trimtab.toml"
    lines = [
        line
        for section, values in balancer.settings().items()
        for line in (f"[{section}]", *(f"{_key(key)} = {json.dumps(value)}" for key, value in values.items()))
    ]
    file.write_text("\n".join([*lines, ""]))
    environment = {"TRIMTAB_TARGETS": json.dumps({CLUSTER: {"pulsar": {"admin_url": pulsar.admin_url}}})}
    programs = [
        Trimtab(
            directory,
            bootstrap=kafka.bootstrap,
            metrics_port=free_ports(1)[0],
            settings=file,
            command=command,
            log=f"{command[0]}.log",
            environment=environment,
        )
        for command in (("run",), ("collect", "pulsar", CLUSTER), ("execute", "pulsar", CLUSTER))
    ]
    for program in programs:
        program.process.command = (*_BESIDE, *program.process.command)
    programs[0].create_topics()
    settings = load(file=file, flags={}, environ=environment).settings
    for program in programs:
        stack.callback(program.stop)
        program.start()
    for program in programs:
        program.wait_until_ready()
    return programs, stack.enter_context(Topics(kafka.bootstrap, settings))


def _key(key: str) -> str:
    return json.dumps(key) if "." in key else key


def _happen(pulsar: LocalPulsar, scenario: Scenario, until_s: float) -> None:
    match scenario.happening:
        case "join":
            for number in range(scenario.brokers_count + 1, scenario.all_count + 1):
                pulsar.start_broker(number)
        case "leave":
            pulsar.stop_broker(scenario.brokers_count)
        case "restart-all":
            next_s = time.time()
            for number in range(1, scenario.brokers_count + 1):
                time.sleep(max(0.0, min(next_s, until_s) - time.time()))
                next_s = time.time() + RESTART_EVERY_S
                pulsar.stop_broker(number)
                pulsar.start_broker(number)


def _answered(topics: Topics | None) -> dict[str, int | None]:
    """How many actions trimtab gave, and how many of them have no result."""
    if topics is None:
        return {"actions": None, "without_result": None}
    actions: set[str] = set()
    results: set[str] = set()

    def is_done() -> bool:
        received = topics.receive(1.0)
        actions.update(each.action_id for each in received if isinstance(each, Decided))
        results.update(each.action_id for each in received if isinstance(each, Result))
        return not received and actions <= results

    poll(is_done, timeout_s=_LAST_RESULTS_S, pause_s=_POLL_S)
    return {"actions": len(actions), "without_result": len(actions - results)}


def _process_of(pulsar: LocalPulsar, number: int) -> int | None:
    broker = pulsar.processes[f"broker{number}"]
    return broker.process.pid if broker.process is not None and broker.running() else None


def _cpu_s(programs: list[Trimtab]) -> float:
    """Processor time of everything that the programs started and that still runs."""
    ticks = 0
    for program in programs:
        session = program.process.process
        for pid in members(session.pid) if session is not None else ():
            _, _, behind_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
            fields = behind_name.split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()
