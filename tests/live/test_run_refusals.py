"""A start that is not allowed is refused with an exit code and the remedy, and leaves nothing behind.

Nothing: no topic, no record, no consumer group, no file and no directory.
"""

import json
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from uuid import uuid4

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType

from deploy.local.kafka import LocalKafka, Node
from deploy.local.processes import free_ports
from state.outputs import rfc3339
from streaming.process.exits import REFUSED, UNREACHABLE, WRONG_USE
from tests.support.loads import played
from tests.support.processes import TRIMTAB, Warm, environment, wait_until_unready
from tests.support.stage import QUICK, Stage, newest_start, read_manifest, replayed, staged

pytestmark = pytest.mark.live

OWN = QUICK + '[targets.here.kafka]\nbootstrap = "{bootstrap}"\n'
Run = Callable[..., tuple[int, str]]
"""Starts a command to its end; gives its exit code and what it said."""


class Obliging(LocalKafka):
    """A Kafka as it is without settings: it makes every topic that a client asks for in the wrong way."""

    def _more_properties(self, _node: Node) -> str:
        return "auto.create.topics.enable=true\n"


@pytest.fixture(scope="module")
def obliging(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    with Obliging(tmp_path_factory.mktemp("obliging")) as running:
        yield running


@pytest.fixture
def stage(obliging: LocalKafka, tmp_path: Path) -> Iterator[Stage]:
    with staged(obliging.bootstrap, tmp_path) as made:
        yield made


@pytest.fixture
def nowhere(obliging: LocalKafka, tmp_path: Path) -> Stage:
    """A stage without topics."""
    return Stage(obliging.bootstrap, f"none-{uuid4().hex[:8]}", tmp_path)


@pytest.fixture
def warmly(warm: Warm) -> Run:
    """In the warm process."""

    def run(*arguments: str) -> tuple[int, str]:
        with warm.start(*arguments) as started:
            return started.wait(), started.output

    return run


def coldly(*arguments: str) -> tuple[int, str]:
    """As a process of its own, in a directory that has to stay empty."""
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
    files = {path: path.read_bytes() if path.is_file() else None for path in stage.directory.rglob("*")}
    return {"groups": groups, "ends": ends, "files": files}


def refuse(
    stage: Stage, run: Run, config: Path, *arguments: str, saying: tuple[str, ...], code: int = REFUSED
) -> None:
    """Check that a start ends with this code, says these words, and leaves all as it was."""
    before = seen(stage)
    ended, said = run(*arguments, "--config", str(config))
    assert ended == code, said
    assert "Traceback" not in said
    for words in saying:
        assert words in said, said
    assert seen(stage) == before, arguments


PROGRAMS = {
    "run": ("run",),
    "collect": ("collect", "kafka", "here"),
    "execute": ("execute", "kafka", "here"),
    "record": ("record", "{folder}/recorded.ndjson"),
    "rotating record": ("record", "--max-total-size", "1GiB", "{folder}/below/recordings"),
    "feed": ("feed",),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_that_finds_no_topics_no_broker_or_wrong_settings(nowhere: Stage, name: str):
    base = OWN.format(bootstrap=nowhere.bootstrap)
    arguments = tuple(each.format(folder=nowhere.directory) for each in PROGRAMS[name])
    is_controller = ("topics missing", "trimtab topics create") if name == "run" else ()
    config = nowhere.settings(base=base)
    refuse(nowhere, coldly, config, *arguments, saying=(nowhere.name, *is_controller))

    address = f"127.0.0.1:{free_ports(1)[0]}"
    away = nowhere.settings(
        base=base, file="away.toml", input__url=f"kafka://{address}", controller__start_wait_s=1
    )
    is_controller = ("Check that the address is right", "controller.start_wait_s") if name == "run" else ()
    refuse(nowhere, coldly, away, *arguments, saying=(address, *is_controller), code=UNREACHABLE)

    wrong = nowhere.settings(base=base, file="wrong.toml", spark__trigger_intervall_s=1)
    refuse(nowhere, coldly, wrong, *arguments, saying=("trigger_interval_s",), code=WRONG_USE)


def test_a_controller_without_java_with_a_taken_port_or_a_wrong_kind_of_timestamps(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
):
    config, topic = stage.settings(), stage.topics.input
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        said = (f"127.0.0.1:{port}", "another trimtab may run", "choose another port with --metrics-port")
        refuse(stage, coldly, config, "run", "--metrics-port", port, saying=said)
    both = ("run", "--fresh", "--adopt")
    refuse(stage, coldly, config, *both, saying=("exclude each other",), code=WRONG_USE)
    with monkeypatch.context() as patched:
        patched.setenv("JAVA_HOME", str(stage.directory))
        refuse(stage, coldly, config, "run", saying=("no java",))
    with KafkaAdminClient(bootstrap_servers=stage.bootstrap) as admin:
        change = {"message.timestamp.type": "CreateTime"}
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, change)])
    said = (f"topic {topic}: message.timestamp.type is CreateTime", "message.timestamp.type=LogAppendTime")
    refuse(stage, coldly, config, "run", saying=said)


def test_a_controller_whose_checkpoint_does_not_fit(stage: Stage, warm: Warm, warmly: Run):
    config = stage.settings(spark__max_records_per_trigger_count=3)
    longer = stage.settings(base=QUICK.replace("length_s = 10", "length_s = 20"), file="longer.toml")
    kafka = stage.settings(base=f"{QUICK}\n[kafka.rounds]\nlength_s = 30\n", file="kafka.toml")
    run_until(stage, warm, config, played(range(2)), 2)

    def refused(*saying: str, config: Path = config, flags: tuple[str, ...] = ()) -> None:
        refuse(stage, warmly, config, "run", *flags, saying=saying)

    somebody = f"belongs to the controller '{stage.name}'"
    refused(somebody, "set controller.name back", flags=("--name", "somebody-else"))
    refused("rounds of 10 s, the settings say length_s = 20 in [pulsar.rounds]", config=longer)
    refused("rounds of 10 s, the settings say length_s = 30 in [kafka.rounds]", config=kafka)
    foreign = stage.directory / "foreign"
    foreign.mkdir()
    (foreign / "letters.txt").write_text("mine")
    refused("is not empty and is not a checkpoint of trimtab", flags=("--checkpoint", str(foreign)))
    below = ("--checkpoint", str(config / "below-a-file"))
    refused("cannot be read or written", "spark.checkpoint", flags=below)
    new = ("--checkpoint", str(stage.directory / "a" / "b" / "new"))
    refused("its checkpoint is not at", "deleted, replaced by a new one", "It ran last as", flags=new)

    start = newest_start(stage.checkpoint)
    manifest = start / "trimtab.json"
    text = manifest.read_bytes()
    told = json.loads(text)
    assert (told["trimtab_version"], told["spark_version"]) == (version("trimtab"), version("pyspark"))
    rewrite(manifest, json.dumps(told | {"memory_version": 99}).encode())
    refused("written by a newer trimtab (memory version 99", "--fresh")
    rewrite(manifest, json.dumps(told | {"memory_version": 1}).encode())
    refused("written by an older trimtab (memory version 1", "--fresh")
    rewrite(manifest, text[:20])
    refused("cannot be read")
    rewrite(manifest, text)
    metadata = (start / "metadata").read_bytes()
    rewrite(start / "metadata", b"{")
    refused("cannot be read")
    rewrite(start / "metadata", metadata)
    roll_back(start)
    refused("the checkpoint is older than what was published")
    shutil.rmtree(stage.checkpoint)
    refused("its checkpoint is not at", "--fresh")


def run_until(
    stage: Stage, warm: Warm, config: Path, events: list[bytes], rounds_count: int, *flags: str
) -> None:
    """Send events, run until so many rounds are out, then stop."""
    stage.send(events)
    with warm.run(config, *flags) as run:
        stage.wait_for(stage.topics.audit, rounds_count, running=[run])


def roll_back(checkpoint: Path) -> None:
    """Take the newest batch out of the query's logs, as in a copy made before it."""
    newest = max(int(file.name) for file in (checkpoint / "offsets").iterdir() if file.name.isdecimal())
    assert newest > 0, "there is a batch to go back to"
    for log in ("offsets", "commits"):
        for name in (str(newest), f".{newest}.crc"):
            (checkpoint / log / name).unlink(missing_ok=True)


def rewrite(file: Path, text: bytes) -> None:
    """Change a file of the checkpoint, and drop the checksum that Hadoop keeps beside it."""
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    file.write_bytes(text)


def test_a_refused_controller_that_is_to_stay_is_alive_unready_and_says_why(nowhere: Stage, warm: Warm):
    config = nowhere.settings(controller__when_refused="stay")
    with warm.start("run", "--config", str(config)) as run:
        wait_until_unready(run, because="topics missing")
        assert "staying, unready" in run.output
        assert run.terminate() == REFUSED


@pytest.mark.slow
def test_the_right_checkpoint_goes_on_adopt_trusts_an_older_fresh_starts_over(stage: Stage, warm: Warm):
    config = stage.settings()
    run_until(stage, warm, config, played([0]), 1)
    older = shutil.copytree(stage.checkpoint, stage.directory / "older")
    run_until(stage, warm, config, played([1]), 2)
    kept = stage.checkpoint.rename(stage.directory / "kept")
    shutil.copytree(older, stage.checkpoint)
    assert "the checkpoint is older than what was published" in warm.refused(config)

    shutil.rmtree(stage.checkpoint)
    kept.rename(stage.checkpoint)
    run_until(stage, warm, config, played([2]), 3)
    assert stage.published() == replayed(config, played(range(3))), "the right one goes on as if nothing was"

    shutil.rmtree(stage.checkpoint)
    older.rename(stage.checkpoint)
    run_until(stage, warm, config, [], 5, "--adopt")
    rounds = stage.published().rounds["east-1"]
    assert rounds[3:] == rounds[1:3], "published again: the older checkpoint did not know them"

    run_until(stage, warm, config, [], 8, "--fresh")
    assert newest_start(stage.directory / "checkpoint.replaced-1")
    manifest = read_manifest(newest_start(stage.checkpoint))
    started = ("--started", rfc3339(manifest.memory_start.at_ms), "--fresh")
    assert (
        stage.published().rounds["east-1"][5:]
        == replayed(config, played(range(3)), *started).rounds["east-1"]
    )
    epochs = stage.epochs(stage.topics.audit)
    assert epochs == sorted(epochs)
    assert len(set(epochs)) == 5, "each start has its own"
