"""trimtab's topics on a real Pulsar that asks for tokens, over TLS: the documented permissions are enough, any one less is named."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme

from deploy.local.secure_pulsar import SecurePulsar
from streaming.process.exits import REFUSED
from streaming.pulsar.link import input_on_pulsar
from streaming.pulsar.side import PulsarSide
from streaming.settings import load
from streaming.transport.errors import PublishError
from streaming.transport.executor import Memory, Remembered
from tests.live.driving import Warm, command
from tests.live.golden_events import decided, events_for_the_controller, golden_action, publish, results
from tests.live.operating import operate
from tests.live.pulsar.grants import Role, documented
from tests.live.pulsar.lab import CLUSTER, TENANT, Lab
from tests.live.pulsar.stage import PulsarStage
from tests.live.stage import QUICK

pytestmark = pytest.mark.live


@pytest.fixture
def stage(secured: SecurePulsar, tmp_path: Path) -> Iterator[PulsarStage]:
    """A stage whose own clients are the super-user's; no topics yet."""
    made = PulsarStage(
        "", f"s-{tmp_path.name[-20:]}".replace("_", "-"), tmp_path, lab=Lab(secured, bundles_count=1)
    )
    yield made
    made.close()


def settings_of(role: Role, *, more: str = "") -> str:
    """The settings file of a role; ``more`` are further sections."""
    return str(become(role).settings(base=QUICK + more, file=f"{role.name}.toml"))


def become(role: Role) -> PulsarStage:
    """The stage, whose settings are this role's from now on."""
    assert role.stage.lab is not None
    assert isinstance(role.stage.lab.pulsar, SecurePulsar)
    role.stage.token_file = role.stage.lab.pulsar.token_file(role.name)
    return role.stage


@pytest.mark.slow
def test_an_administrator_of_the_tenant_makes_the_topics_runs_the_controller_and_operates_it_over_tls(
    secured: SecurePulsar, stage: PulsarStage, warm: Warm, tmp_path: Path
) -> None:
    assert stage.lab is not None
    controller = Role(stage, "trimtab")
    config = settings_of(controller)
    remedy = f"pulsar-admin tenants update {TENANT} --admin-roles ROLE"
    assert remedy in command("topics", "create", "--config", config, code=REFUSED).stderr
    with warm.start("run", "--config", config) as run:
        assert run.wait() == REFUSED
        assert remedy in run.output
        assert secured.token_of(controller.name) not in run.output
    tenant = {"allowedClusters": [secured.cluster], "adminRoles": [controller.name]}
    stage.lab.post(f"tenants/{TENANT}", tenant)
    assert command("topics", "create", "--config", config).stdout.count(": created") == 9
    operate(become(controller), warm)

    trustme.CA().cert_pem.write_to_path(str(tmp_path / "other.pem"))
    stranger = tmp_path / "stranger.toml"
    stranger.write_text(Path(config).read_text().replace(str(secured.ca_file), str(tmp_path / "other.pem")))
    with warm.start("run", "--config", str(stranger)) as run:
        assert run.wait() == REFUSED
        assert "CERTIFICATE_VERIFY_FAILED" in run.output
        assert "ca_file" in run.output


def test_an_operators_commands_write_nothing_before_naming_the_permission_that_is_missing(
    stage: PulsarStage,
) -> None:
    stage.create_topics()
    operator = Role(stage, "operator")
    known = f'[clusters."{CLUSTER}".pulsar.avg_shedder]\nlow_hit_count = 4\n'
    pause = ("pause", "--config", settings_of(operator, more=known), "--all", "--why", "the sale")
    for missing in operator.one_less(documented("trimtab pause")):
        assert operator.command(missing) in command(*pause, code=REFUSED).stderr
        assert stage.values(stage.topics.control) == []
    assert "paused: no -> yes" in command(*pause).output


def test_watching_works_with_its_permissions_and_names_the_one_that_is_missing(stage: PulsarStage) -> None:
    stage.create_topics()
    onlooker, action = Role(stage, "onlooker"), decided(stage)
    config = settings_of(onlooker)
    why = ("actions", "why", "--config", config, action["id"])
    status = ("status", "--config", config)
    rejected = ("rejected", "tail", "--config", config, "--from", "earliest", "--no-follow")
    asking = {
        "trimtab.control": (status, 0),
        "trimtab.beats": (status, 0),
        "trimtab.dead-letter": (rejected, REFUSED),
    }
    for missing in onlooker.one_less(documented("trimtab actions tail")):
        asked, code = asking.get(missing.topic, (why, REFUSED))
        assert onlooker.command(missing) in command(*asked, code=code).stderr
    assert "Bundles of the brokers that fired" in command(*why).output
    assert "as configured, no control event" in command(*status).output
    assert command(*rejected).output == ""


def test_a_collector_works_with_its_permission_and_names_it_where_it_is_missing(stage: PulsarStage) -> None:
    stage.create_topics()
    collector = Role(stage, "collector")
    sweep = (
        "collect",
        "pulsar",
        CLUSTER,
        "--config",
        settings_of(collector, more=target_of(stage)),
        "--once",
    )
    for missing in collector.one_less(documented("trimtab collect")):
        assert collector.command(missing) in command(*sweep, code=REFUSED).stderr
    command(*sweep)
    assert events_for_the_controller(stage, "trimtab.tick.v1")[-1]["failed"] == {}


def test_an_executor_works_with_its_permissions_and_names_the_one_that_is_missing(stage: PulsarStage) -> None:
    stage.create_topics()
    executor = Role(stage, "executor")
    config = settings_of(executor, more=target_of(stage))
    execute = ("execute", "pulsar", CLUSTER, "--config", config, "--once")
    publish(stage, stage.topics.actions, golden_action("unload"))
    for missing in executor.one_less(documented("trimtab execute")):
        assert executor.command(missing) in command(*execute, code=REFUSED).stderr
    command(*execute)
    assert results(stage)[-1]["outcome"] == "skipped", "there is no such bundle"


def test_an_executor_of_kafka_remembers_on_pulsar_with_its_permissions_and_names_the_one_that_is_missing(
    stage: PulsarStage,
) -> None:
    stage.create_topics()
    executor = Role(stage, "pacer")
    link = input_on_pulsar(load(file=Path(settings_of(executor)), flags={}, environ={}).settings)
    assert link is not None
    memory = Memory(PulsarSide(link), stage.topics.executor_kafka, CLUSTER)
    put = Remembered.parse(b'{"added":{"leader":{"orders":"0:1"}}}')
    tried: dict[str, Callable[[], object]] = {"consume": memory.read, "produce": lambda: write(memory, put)}
    for missing in executor.one_less(documented("trimtab execute kafka")):
        with pytest.raises(PublishError) as refused:
            tried[missing.action]()
        assert executor.command(missing) in str(refused.value)
    write(memory, put)
    assert memory.read() == put


def write(memory: Memory, remembered: Remembered) -> None:
    with memory.hold() as held:
        held.write(remembered)


def target_of(stage: PulsarStage) -> str:
    """The same Pulsar as the cluster that is read or acted on, as its super-user."""
    assert stage.lab is not None
    lines = {
        name: getattr(stage.lab.target, name) for name in ("admin_url", "ca_file", "token_file", "web_port")
    }
    text = "".join(f"{name} = {json.dumps(value)}\n" for name, value in lines.items())
    return f'[targets."{CLUSTER}".pulsar]\n{text}'
