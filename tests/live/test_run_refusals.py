"""A start that is not allowed is refused with an exit code and the remedy, and leaves nothing behind."""

import json
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from uuid import uuid4

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType

from deploy.local.kafka import LocalKafka
from deploy.local.kafka import Node as KafkaNode
from deploy.local.ports import free_ports
from streaming.process.exits import REFUSED, UNREACHABLE, WRONG_USE
from tests.support.loads import played
from tests.support.processes import TRIMTAB, Warm, environment, wait_until_unready
from tests.support.stage import QUICK, Stage, newest_start, replayed, staged

pytestmark = pytest.mark.live


def refusal(warm: Warm, config: Path, *flags: str, code: int = REFUSED) -> str:
    """Start, and return what was said when it ended with this code."""
    with warm.start("run", "--config", str(config), *flags) as run:
        assert run.wait() == code, run.output
        assert "Traceback" not in run.output
        return run.output


def run_until(stage: Stage, warm: Warm, config: Path, rounds_count: int, *flags: str) -> None:
    """Run until so many rounds are out, then stop."""
    with warm.start("run", "--config", str(config), "--from", "earliest", *flags) as run:
        stage.wait_for(stage.topics.audit, rounds_count, running=[run])
        assert run.terminate() == 0


def test_missing_topics_a_wrong_timestamp_type_a_taken_port_and_wrong_settings_are_refused_before_spark_starts(
    stage: Stage, kafka: LocalKafka, warm: Warm, tmp_path: Path
) -> None:
    nowhere = Stage(kafka.bootstrap, f"none-{uuid4().hex[:8]}", tmp_path)
    message = refusal(warm, nowhere.settings(file="nowhere.toml"))
    assert "topics missing" in message
    assert nowhere.topics.input in message
    assert "trimtab topics create" in message

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        message = refusal(warm, stage.settings(metrics__port=port))
        assert f"127.0.0.1:{port}" in message
        assert "choose another one with --metrics-port" in message

    message = refusal(warm, stage.settings(spark__trigger_intervall_s=1), code=WRONG_USE)
    assert "trigger_interval_s" in message
    message = refusal(warm, stage.settings(), "--fresh", "--adopt", code=WRONG_USE)
    assert "exclude each other" in message

    with KafkaAdminClient(bootstrap_servers=kafka.bootstrap) as admin:
        change = {"message.timestamp.type": "CreateTime"}
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, stage.topics.input, change)])
    message = refusal(warm, stage.settings())
    assert f"topic {stage.topics.input}: message.timestamp.type is CreateTime" in message
    assert "message.timestamp.type=LogAppendTime" in message


def test_a_checkpoint_that_does_not_fit_is_refused_with_the_remedy_and_nothing_is_published(
    stage: Stage, warm: Warm
) -> None:
    config = stage.settings(spark__max_records_per_trigger_count=3)
    stage.send(played(range(2)))
    run_until(stage, warm, config, 2)
    before = stage.published()

    message = refusal(warm, config, "--name", "somebody-else")
    assert f"belongs to the controller '{stage.name}'" in message
    assert "set controller.name back" in message

    longer = stage.settings(base=QUICK.replace("length_s = 10", "length_s = 20"), file="longer.toml")
    message = refusal(warm, longer)
    assert "rounds of 10 s, the settings say length_s = 20 in [pulsar.rounds]" in message

    kafka = stage.settings(base=f"{QUICK}\n[kafka.rounds]\nlength_s = 30\n", file="kafka.toml")
    message = refusal(warm, kafka)
    assert "rounds of 10 s, the settings say length_s = 30 in [kafka.rounds]" in message

    card = newest_start(stage.checkpoint) / "trimtab.json"
    text = card.read_bytes()
    assert json.loads(text)["trimtab_version"] == version("trimtab")
    assert json.loads(text)["spark_version"] == version("pyspark")
    rewrite(card, json.dumps(json.loads(text) | {"memory_version": 99}).encode())
    message = refusal(warm, config)
    assert "written by a newer trimtab (memory version 99" in message
    assert "--fresh" in message
    rewrite(card, json.dumps(json.loads(text) | {"memory_version": 1}).encode())
    message = refusal(warm, config)
    assert "written by an older trimtab (memory version 1" in message
    assert "--fresh" in message
    rewrite(card, text)

    foreign = stage.directory / "foreign"
    foreign.mkdir()
    (foreign / "letters.txt").write_text("mine")
    message = refusal(warm, config, "--checkpoint", str(foreign))
    assert "is not empty and is not a checkpoint of trimtab" in message
    assert [file.name for file in foreign.iterdir()] == ["letters.txt"]

    message = refusal(warm, config, "--checkpoint", str(config / "below-a-file"))
    assert "cannot be read or written" in message
    assert "spark.checkpoint" in message

    roll_back(newest_start(stage.checkpoint))
    message = refusal(warm, config)
    assert "the checkpoint is older than what was published" in message

    shutil.rmtree(stage.checkpoint)
    message = refusal(warm, config)
    assert "the checkpoint was deleted or replaced by a new one" in message
    assert "--fresh" in message
    assert "--adopt" in message
    assert stage.published() == before


def roll_back(checkpoint: Path) -> None:
    """Take the newest batch out of the query's logs, as in a copy made before it."""
    newest = max(int(file.name) for file in (checkpoint / "offsets").iterdir() if file.name.isdecimal())
    assert newest > 0, "there is a batch to go back to"
    for log in ("offsets", "commits"):
        for name in (str(newest), f".{newest}.crc"):
            (checkpoint / log / name).unlink(missing_ok=True)


def rewrite(card: Path, text: bytes) -> None:
    """Change a file of the checkpoint, and drop the checksum that Hadoop keeps beside it."""
    card.with_name(f".{card.name}.crc").unlink(missing_ok=True)
    card.write_bytes(text)


@pytest.mark.slow
def test_an_address_where_nobody_answers_is_named_when_the_wait_is_over_with_a_code_of_its_own(
    stage: Stage, warm: Warm
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    config = stage.settings(controller__start_wait_s=1)
    message = refusal(warm, config, "--input", f"kafka://127.0.0.1:{port}", code=UNREACHABLE)
    assert f"127.0.0.1:{port}" in message
    assert "Check that the address is right" in message
    assert "controller.start_wait_s" in message


def test_a_refused_controller_that_is_to_stay_is_alive_unready_and_says_why_until_it_is_told_to_stop(
    kafka: LocalKafka, warm: Warm, tmp_path: Path
) -> None:
    nowhere = Stage(kafka.bootstrap, f"none-{uuid4().hex[:8]}", tmp_path)
    config = nowhere.settings(controller__when_refused="stay")
    with warm.start("run", "--config", str(config)) as run:
        wait_until_unready(run, because="topics missing")
        assert "staying, unready" in run.output
        assert run.terminate() == REFUSED


@pytest.mark.slow
def test_after_a_refusal_the_right_checkpoint_goes_on_adopt_trusts_an_older_one_and_fresh_starts_over(
    stage: Stage, warm: Warm
) -> None:
    config = stage.settings()
    stage.send(played([0]))
    run_until(stage, warm, config, 1)
    older = shutil.copytree(stage.checkpoint, stage.directory / "older")
    stage.send(played([1]))
    run_until(stage, warm, config, 2)
    kept = stage.checkpoint.rename(stage.directory / "kept")
    shutil.copytree(older, stage.checkpoint)
    assert "the checkpoint is older than what was published" in refusal(warm, config)

    shutil.rmtree(stage.checkpoint)
    kept.rename(stage.checkpoint)
    stage.send(played([2]))
    run_until(stage, warm, config, 3)
    assert stage.published() == replayed(config, played(range(3))), "the right one goes on as if nothing was"

    shutil.rmtree(stage.checkpoint)
    older.rename(stage.checkpoint)
    run_until(stage, warm, config, 5, "--adopt")
    rounds = stage.published().rounds["east-1"]
    assert rounds[3:] == rounds[1:3], "published again: the older checkpoint did not know them"

    run_until(stage, warm, config, 8, "--fresh")
    assert newest_start(stage.directory / "checkpoint.replaced-1")
    rounds = stage.published().rounds["east-1"]
    assert rounds[5:] == rounds[:3]
    epochs = stage.epochs(stage.topics.audit)
    assert epochs == sorted(epochs)
    assert len(set(epochs)) == 5, "each start has its own"


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
