"""A refused start leaves nothing behind: no topic, no record, no consumer group, no file and no directory, whatever refused it."""

import json
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType

from deploy.local.kafka import LocalKafka
from deploy.local.kafka import Node as KafkaNode
from deploy.local.processes import free_ports
from streaming.process.exits import REFUSED, UNREACHABLE, WRONG_USE
from tests.live.checkpoints import newest_start
from tests.live.driving import TRIMTAB, Warm, environment
from tests.live.loads import played
from tests.live.stage import QUICK, Stage, staged

pytestmark = pytest.mark.live

OWN = QUICK + '[targets.here.kafka]\nbootstrap = "{bootstrap}"\n'


class Obliging(LocalKafka):
    """A Kafka as it is without settings: it makes every topic that a client asks for in the wrong way."""

    def _more_properties(self, _node: KafkaNode) -> str:
        return "auto.create.topics.enable=true\n"


@pytest.fixture(scope="module")
def obliging(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    with Obliging(tmp_path_factory.mktemp("obliging")) as running:
        yield running


def seen(stage: Stage) -> Mapping[str, object]:
    """Every topic with its ends, every group, and every file below the stage's directory with its content."""
    with KafkaAdminClient(bootstrap_servers=stage.bootstrap) as admin:
        groups = sorted(group["group_id"] for group in admin.list_groups())
        topics = admin.describe_topics()
    places = [
        TopicPartition(topic["name"], part["partition_index"])
        for topic in topics
        for part in topic["partitions"]
    ]
    with KafkaConsumer(bootstrap_servers=stage.bootstrap, group_id=None) as consumer:
        ends = consumer.end_offsets(places)
    files = {
        str(path.relative_to(stage.directory)): path.read_bytes() if path.is_file() else None
        for path in stage.directory.rglob("*")
    }
    return {"groups": groups, "ends": ends, "files": files}


@dataclass(frozen=True, slots=True)
class Refusal:
    """A start, given by its arguments without the settings file, that has to end with this code and these words."""

    arguments: tuple[str, ...]
    words: str
    code: int = REFUSED


def check(stage: Stage, config: Path, refusal: Refusal, run: Callable[..., tuple[int, str]]) -> None:
    before = seen(stage)
    code, said = run(*refusal.arguments, "--config", str(config))
    assert (code, refusal.words in said) == (refusal.code, True), said
    assert seen(stage) == before, refusal


def at_once(*arguments: str) -> tuple[int, str]:
    """A command as a process, in a directory of its own that has to stay empty."""
    place = Path(arguments[-1]).parent
    done = subprocess.run(
        [*TRIMTAB, *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
        env=environment(place),
        cwd=place,
    )
    return done.returncode, done.stdout + done.stderr


PROGRAMS = {
    "run": ("run",),
    "collect": ("collect", "kafka", "here"),
    "execute": ("execute", "kafka", "here"),
    "record": ("record", "{folder}/recorded.ndjson"),
    "rotating record": ("record", "--max-total-size", "1GiB", "{folder}/below/recordings"),
    "feed": ("feed",),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_that_finds_no_topics_no_broker_or_wrong_settings_leaves_nothing(
    obliging: LocalKafka, tmp_path: Path, name: str
) -> None:
    stage = Stage(obliging.bootstrap, f"none-{uuid4().hex[:8]}", tmp_path)
    base = OWN.format(bootstrap=stage.bootstrap)
    arguments = tuple(each.format(folder=tmp_path) for each in PROGRAMS[name])
    config = stage.settings(base=base)
    check(stage, config, Refusal(arguments, stage.name), at_once)

    nowhere = f"kafka://127.0.0.1:{free_ports(1)[0]}"
    away = stage.settings(base=base, file="away.toml", input__url=nowhere, controller__start_wait_s=1)
    code = REFUSED if "record" in name or name == "feed" else UNREACHABLE
    check(stage, away, Refusal(arguments, nowhere.removeprefix("kafka://"), code), at_once)

    wrong = stage.settings(base=base, file="wrong.toml", spark__trigger_intervall_s=1)
    check(stage, wrong, Refusal(arguments, "trigger_interval_s", WRONG_USE), at_once)


def test_a_controller_without_java_with_a_taken_port_or_a_wrong_kind_of_timestamps_leaves_nothing(
    obliging: LocalKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with staged(obliging.bootstrap, tmp_path) as stage:
        config = stage.settings()
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = str(taken.getsockname()[1])
            check(stage, config, Refusal(("run", "--metrics-port", port), port), at_once)
        check(stage, config, Refusal(("run", "--fresh", "--adopt"), "exclude", WRONG_USE), at_once)
        with monkeypatch.context() as patched:
            patched.setenv("JAVA_HOME", str(tmp_path))
            check(stage, config, Refusal(("run",), "no java"), at_once)
        with KafkaAdminClient(bootstrap_servers=stage.bootstrap) as admin:
            change = {"message.timestamp.type": "CreateTime"}
            admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, stage.topics.input, change)])
        check(stage, config, Refusal(("run",), "CreateTime"), at_once)


def test_a_controller_whose_checkpoint_does_not_fit_leaves_nothing(
    obliging: LocalKafka, warm: Warm, tmp_path: Path
) -> None:
    def run(*arguments: str) -> tuple[int, str]:
        with warm.start(*arguments) as started:
            return started.wait(), started.output

    with staged(obliging.bootstrap, tmp_path) as stage:
        config = stage.settings()
        stage.send(played(range(2)))
        with warm.start("run", "--config", str(config), "--from", "earliest") as first:
            stage.wait_for(stage.topics.audit, 2, running=[first])
            assert first.terminate() == 0
        for refusal in refusals_of(stage):
            check(stage, config, refusal, run)


def refusals_of(stage: Stage) -> Iterator[Refusal]:
    """Refusals for the checkpoint; before each the checkpoint is made what it has to be."""
    new, below = stage.directory / "a" / "b" / "new", stage.directory / "trimtab.toml" / "below"
    yield Refusal(("run", "--checkpoint", str(new)), "deleted or replaced by a new one")
    yield Refusal(("run", "--checkpoint", str(below)), "cannot be read or written")
    foreign = stage.directory / "foreign"
    foreign.mkdir()
    (foreign / "letters.txt").write_text("mine")
    yield Refusal(("run", "--checkpoint", str(foreign)), "is not a checkpoint of trimtab")
    yield Refusal(("run", "--name", "somebody-else"), "belongs to the controller")
    start = newest_start(stage.checkpoint)
    card = start / "trimtab.json"
    card.with_name(f".{card.name}.crc").unlink(missing_ok=True)
    told = json.loads(card.read_bytes())
    card.write_text(json.dumps(told | {"memory_version": 99}))
    yield Refusal(("run",), "written by a newer trimtab")
    card.write_text(json.dumps(told)[:20])
    yield Refusal(("run",), "cannot be read")
    card.write_text(json.dumps(told))
    (start / ".metadata.crc").unlink(missing_ok=True)
    (start / "metadata").write_text("{")
    yield Refusal(("run",), "cannot be read")
    shutil.rmtree(stage.checkpoint)
    yield Refusal(("run",), "deleted or replaced by a new one")
