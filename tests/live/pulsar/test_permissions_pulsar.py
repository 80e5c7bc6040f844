"""A real Pulsar that asks for tokens, over TLS: the documented permissions are enough, and any one less is named."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import trustme
from click.testing import Result

from policies.splitting.ranges import position_of
from streaming.contract.messages import LoadReportMessage, type_of
from streaming.executor import pulsar as executor
from streaming.executor.memory import Memory, Remembered
from streaming.executor.metrics import ExecutorMetrics
from streaming.process.exits import REFUSED
from streaming.pulsar.admin import PulsarAdmin
from streaming.pulsar.http import AdminError, HttpClient
from streaming.pulsar.link import input_on_pulsar
from streaming.pulsar.side import PulsarSide
from streaming.settings import PulsarTarget, Settings, load
from streaming.transport.errors import PublishError
from tests.support.actions import decided, golden_action, publish, results
from tests.support.operating import operate
from tests.support.permissions import Role, granted
from tests.support.processes import Warm, command, until
from tests.support.pulsar import CLUSTER, TENANT, Lab, PulsarStage, section_of, target_of
from tests.support.secure_pulsar import SecurePulsar
from tests.support.stage import QUICK

pytestmark = pytest.mark.live


@pytest.fixture
def stage(secured: SecurePulsar, tmp_path: Path) -> Iterator[PulsarStage]:
    """A stage whose own clients are the super-user's; no topics yet."""
    name = f"s-{tmp_path.name[-20:]}".replace("_", "-")
    made = PulsarStage("", name, tmp_path, lab=Lab(secured, bundles_count=1))
    yield made
    made.close()


def settings_of(role: Role, *, more: str = "") -> str:
    """The settings file of a role; ``more`` are further sections."""
    return str(become(role).settings(base=QUICK + more, file=f"{role.name}.toml"))


def become(role: Role) -> PulsarStage:
    """The stage, whose settings are this role's from now on."""
    assert isinstance(role.stage.lab.pulsar, SecurePulsar)
    role.stage.token_file = role.stage.lab.pulsar.token_file(role.name)
    return role.stage


@pytest.mark.slow
def test_an_administrator_of_the_tenant_runs_and_operates_it_over_tls(
    secured: SecurePulsar, stage: PulsarStage, warm: Warm, tmp_path: Path
):
    controller = Role(stage, "trimtab")
    config = settings_of(controller)
    remedy = f"pulsar-admin tenants update {TENANT} --admin-roles ROLE"
    assert remedy in command("topics", "create", "--config", config, code=REFUSED).stderr
    said = warm.refused(Path(config))
    assert remedy in said
    assert secured.token_of(controller.name) not in said
    tenant = {"allowedClusters": [secured.cluster], "adminRoles": [controller.name]}
    stage.lab.post(f"tenants/{TENANT}", tenant)
    assert command("topics", "create", "--config", config).stdout.count(": created") == 9
    operate(become(controller), warm)

    trustme.CA().cert_pem.write_to_path(str(tmp_path / "other.pem"))
    stranger = tmp_path / "stranger.toml"
    stranger.write_text(Path(config).read_text().replace(str(secured.ca_file), str(tmp_path / "other.pem")))
    said = warm.refused(stranger)
    assert "certificate verify failed" in said
    assert "ca_file" in said


def test_operators_commands_name_the_permission_that_is_missing(stage: PulsarStage):
    stage.create_topics()
    operator = Role(stage, "operator")
    known = f'[clusters."{CLUSTER}".pulsar.avg_shedder]\nlow_hit_count = 4\n'
    pause = ("pause", "--config", settings_of(operator, more=known), "--all", "--why", "the sale")
    for missing in operator.one_less(granted("trimtab pause")):
        assert operator.command(missing) in command(*pause, code=REFUSED).stderr
        assert stage.values(stage.topics.control) == []
    assert "paused: no -> yes" in command(*pause).output


def test_watching_names_the_permission_that_is_missing(stage: PulsarStage):
    stage.create_topics()
    onlooker, action = Role(stage, "onlooker"), decided(stage)
    config = settings_of(onlooker)
    why = ("actions", "why", "--config", config, action["id"])
    status = ("status", "--config", config)
    rejected = ("rejected", "tail", "--config", config, "--from", "earliest", "--no-follow")
    asking = {
        "trimtab.input": (status, 0),
        "trimtab.control": (status, 0),
        "trimtab.beats": (status, 0),
        "trimtab.dead-letter": (rejected, REFUSED),
    }
    for missing in onlooker.one_less(granted("trimtab actions tail")):
        asked, code = asking.get(missing.topic, (why, REFUSED))
        assert onlooker.command(missing) in command(*asked, code=code).stderr
    assert "Other bundles of the brokers that fired" in command(*why).output
    assert "as configured, no control event" in command(*status).output
    assert command(*rejected).stdout == ""


def test_a_collector_names_the_permission_that_is_missing(stage: PulsarStage):
    stage.create_topics()
    collector = Role(stage, "collector")
    config = settings_of(collector, more=section_of(stage.lab.target))
    sweep = ("collect", "pulsar", CLUSTER, "--config", config, "--once")
    for missing in collector.one_less(granted("trimtab collect")):
        assert collector.command(missing) in command(*sweep, code=REFUSED).stderr
    command(*sweep)
    assert stage.data(stage.topics.input, "trimtab.tick.v1")[-1]["failed"] == {}


def test_an_executor_names_the_permission_that_is_missing(stage: PulsarStage):
    stage.create_topics()
    executor = Role(stage, "executor")
    config = settings_of(executor, more=section_of(stage.lab.target))
    execute = ("execute", "pulsar", CLUSTER, "--config", config, "--once")
    publish(stage, golden_action("unload"))
    for missing in executor.one_less(granted("trimtab execute")):
        assert executor.command(missing) in command(*execute, code=REFUSED).stderr
    command(*execute)
    assert results(stage)[-1]["data"]["outcome"] == "skipped", "there is no such bundle"


def test_an_executor_of_kafka_that_remembers_on_pulsar_names_what_is_missing(stage: PulsarStage):
    stage.create_topics()
    executor = Role(stage, "pacer")
    link = input_on_pulsar(load(file=Path(settings_of(executor)), flags={}, environ={}).settings)
    assert link is not None
    memory = Memory(PulsarSide(link), stage.topics.executor_kafka, CLUSTER)
    put = Remembered.parse(b'{"added":{"leader":{"orders":"0:1"}}}')
    tried: dict[str, Callable[[], object]] = {"consume": memory.read, "produce": lambda: write(memory, put)}
    for missing in executor.one_less(granted("trimtab execute kafka")):
        with pytest.raises(PublishError) as refused:
            tried[missing.action]()
        assert executor.command(missing) in str(refused.value)
    write(memory, put)
    assert memory.read() == put


def write(memory: Memory, remembered: Remembered) -> None:
    with memory.hold() as held:
        held.write(remembered)


def collect(target: PulsarTarget, directory: Path, *, code: int = 0) -> Result:
    """One sweep to standard output."""
    config = directory / "trimtab.toml"
    config.write_text(section_of(target))
    asked = ("collect", "pulsar", CLUSTER, "--config", str(config), "--once", "--stdout")
    return command(*asked, code=code)


def test_with_a_super_users_token_it_reads_reports_and_moves_a_bundle(secured: SecurePulsar, tmp_path: Path):
    target = target_of(secured)
    done = collect(target, tmp_path)
    types = [json.loads(line)["type"] for line in done.stdout.splitlines()]
    assert types.count(type_of(LoadReportMessage)) == 1
    with HttpClient(target) as http:
        admin = PulsarAdmin(http, target)
        broker, *_ = admin.brokers(secured.cluster)
        topic = "persistent://public/default/moved"
        admin.call("PUT", "/admin/v2/persistent/public/default/moved")
        admin.lookup(topic)
        bundles = admin.bundles("public/default")
        bundle = next(each for each in bundles if each.range.contains(position_of(topic)))
        assert admin.owner(bundle, [broker]) == broker

        def is_let_go() -> bool:
            return admin.owner(bundle, [broker]) is None

        admin.unload(bundle, destination=None)
        until(is_let_go, what="the bundle to be let go", running=[secured])


@pytest.mark.parametrize(
    ("role", "message"), [("somebody", "superUserRoles"), (None, "token_file or token_env")]
)
def test_a_wrong_token_and_a_missing_permission_are_refused(
    secured: SecurePulsar, tmp_path: Path, role: str | None, message: str
):
    token = "not.a.token" if role is None else secured.token_of(role)
    (tmp_path / "token").write_text(f"{token}\n")
    target = replace(target_of(secured), token_file=str(tmp_path / "token"))
    done = collect(target, tmp_path, code=5)
    assert message in done.stderr
    assert token not in done.stderr
    there = {"cluster": CLUSTER, "target": target, "dry_run": False}
    with ExitStack() as stack, pytest.raises(AdminError, match=message):
        executor.start(stack, Settings(), ExecutorMetrics(CLUSTER), **there)


def test_a_certificate_of_an_unknown_authority_is_refused(secured: SecurePulsar, tmp_path: Path):
    done = collect(replace(target_of(secured), ca_file=None), tmp_path, code=5)
    assert "certificate verify failed" in done.stderr
    assert "check ca_file" in done.stderr
