"""Other versions of what trimtab runs with, where this machine has them, decide as those do that all other tests run on.

Pythons are looked for on the PATH; with pyenv, ``PYENV_VERSION`` may name several: ``3.11.7:3.12.1:3.13.0``.
"""

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from deploy.local.kafka import OLDEST_KAFKA_LOCK, LocalKafka
from deploy.local.pulsar import NEWEST_PULSAR_LOCK, OLDEST_PULSAR_LOCK, LocalPulsar
from tests.support.loads import played
from tests.support.processes import ROOT, TRIMTAB, cold
from tests.support.pulsar import Lab, PulsarStage
from tests.support.stage import Stage, replayed, staged

pytestmark = [pytest.mark.live, pytest.mark.slow]

LOCKS: Mapping[str, Path] = {
    "Kafka 3.9": OLDEST_KAFKA_LOCK,
    "Pulsar 3.0": OLDEST_PULSAR_LOCK,
    "Pulsar 4.2": NEWEST_PULSAR_LOCK,
}
NEWER = ("Python 3.12", "Python 3.13", "Python 3.14", "Java 21", "Java 25")
_JAVAS = Path("/usr/lib/jvm")


@contextmanager
def stage_on(brokers: str, directory: Path) -> Iterator[Stage]:
    """Topics on brokers of this version."""
    lock = LOCKS[brokers]
    if brokers.startswith("Kafka"):
        with LocalKafka(directory / "kafka", lock=lock) as kafka, staged(kafka.bootstrap, directory) as stage:
            yield stage
        return
    with LocalPulsar(directory / "pulsar", lock=lock) as pulsar:
        made = PulsarStage.of(Lab(pulsar), directory)
        yield made
        made.close()


def with_python(version: str, directory: Path) -> tuple[str, ...]:
    """`trimtab` from its package, in an environment of its own; it does not see this clone."""
    uv, there = (sys.executable, "-m", "uv"), directory / "venv"
    made = _run(*uv, "venv", "--quiet", "--no-python-downloads", "--python", version, str(there))
    if made.returncode:
        pytest.skip(f"no Python {version}: {made.stderr.strip()}")
    done = _run(*uv, "pip", "install", "--quiet", "--python", str(there), str(ROOT))
    assert done.returncode == 0, done.stderr
    return "env", "--unset=PYTHONPATH", str(there / "bin" / "trimtab")


def with_java(version: str) -> tuple[str, ...]:
    """`trimtab` of this environment on another Java."""
    for java in sorted(_JAVAS.glob("*/bin/java")):
        if re.search(rf'version "{version}\b', _run(str(java), "-version").stderr):
            return "env", f"JAVA_HOME={java.parents[1]}", *TRIMTAB
    pytest.skip(f"no Java {version} in {_JAVAS}")


def decide(stage: Stage, directory: Path, program: tuple[str, ...] = TRIMTAB) -> None:
    """What `trimtab run` publishes has to be what `trimtab replay` makes of the same events here."""
    config, events = stage.settings(), played(range(6))
    wanted = replayed(config, events)
    assert wanted.actions_count > 0
    stage.send(events)
    with cold(config, directory / "run.log", build=program) as child:
        stage.wait_for_outputs(wanted, running=[child])
        assert child.terminate() == 0
    assert stage.published() == wanted


@pytest.mark.parametrize("brokers", LOCKS)
def test_topics_on_other_brokers_get_what_a_replay_makes(brokers: str, tmp_path: Path):
    with stage_on(brokers, tmp_path) as stage:
        decide(stage, tmp_path)


@pytest.mark.parametrize("newer", NEWER)
def test_a_newer_python_or_java_publishes_what_this_one_replays(stage: Stage, tmp_path: Path, newer: str):
    kind, version = newer.split()
    program = with_python(version, tmp_path) if kind == "Python" else with_java(version)
    decide(stage, tmp_path, program)


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False)
