"""Jars by lock file: what is refused, and what a user is told."""

import hashlib
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from streaming.process.exits import REFUSED
from streaming.spark.jars import CONNECTOR_LOCK, JarError, JavaError, ensure, find_java, read_lock

CONTENT = b"not really a jar"
SHA256 = hashlib.sha256(CONTENT).hexdigest()
WRONG = "0" * 64

IVY_DESCRIPTION = """<ivy-module version="2.0"><info organisation="org.example" module="thing" revision="1.0"/>
<configurations><conf name="master"/></configurations>
<publications><artifact name="thing" type="jar" ext="jar" conf="master"/></publications></ivy-module>"""


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`org.example:thing:1.0` is in the local repository that Ivy's default settings look into first."""
    place = tmp_path / ".ivy2" / "local" / "org.example" / "thing" / "1.0"
    (place / "jars").mkdir(parents=True)
    (place / "jars" / "thing.jar").write_bytes(CONTENT)
    (place / "ivys").mkdir()
    (place / "ivys" / "ivy.xml").write_text(IVY_DESCRIPTION)
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Duser.home={tmp_path}")


def lock_of(folder: Path, *lines: str) -> Path:
    lock = folder / "some.lock"
    lock.write_text("\n".join(lines))
    return lock


def put(cache: Path, content: bytes) -> Path:
    file = cache / "org.example" / "thing" / "1.0" / "thing-1.0.jar"
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    return file


@pytest.mark.usefixtures("published")
def test_a_missing_jar_is_fetched_and_then_kept(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch):
    lock = lock_of(tmp_path, f"org.example:thing:1.0 {SHA256}")
    (file,) = ensure(lock, cache=cache)
    assert file.read_bytes() == CONTENT
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))  # there is no Java here, so a second fetch fails
    assert ensure(lock, cache=cache) == [file]
    assert [place.name for place in cache.iterdir()] == ["org.example"]


@pytest.mark.usefixtures("published")
def test_a_fetch_says_what_it_fetches_and_how_far_it_is(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr("streaming.spark.jars._TOLD_EVERY_S", 0.01)
    with caplog.at_level(logging.INFO):
        ensure(lock_of(tmp_path, f"org.example:thing:1.0 {SHA256}"), cache=cache)
    first, *others = caplog.messages
    assert first == "fetching 1 of the 1 jars of some.lock (once)"
    assert "  0 descriptions, 0 of 1 jars" in others


@pytest.mark.usefixtures("published")
def test_a_fetched_jar_with_another_checksum_is_refused_by_name_and_not_kept(tmp_path: Path, cache: Path):
    with pytest.raises(JarError, match=rf"org\.example:thing:1\.0: expected SHA-256 {WRONG}, found {SHA256}"):
        ensure(lock_of(tmp_path, f"org.example:thing:1.0 {WRONG}"), cache=cache)
    assert list(cache.iterdir()) == []


def test_a_cached_jar_that_was_changed_is_refused_by_name(tmp_path: Path, cache: Path):
    file = put(cache, b"changed")
    with pytest.raises(
        JarError, match=r"org\.example:thing:1\.0: expected SHA-256 .* delete it and run again"
    ) as refused:
        ensure(lock_of(tmp_path, f"org.example:thing:1.0 {SHA256}"), cache=cache)
    assert str(file) in str(refused.value)


def test_unknown_coordinates_are_named_with_what_the_clients_said(tmp_path: Path, cache: Path):
    with pytest.raises(
        JarError, match=r"(?s)org\.example:no-such-thing:1\.0: neither Ivy nor Maven.*Ivy ended with 1"
    ):
        ensure(lock_of(tmp_path, f"org.example:no-such-thing:1.0 {SHA256}"), cache=cache)


def test_a_lock_may_have_comments_blank_lines_and_classifiers(tmp_path: Path):
    lock = lock_of(tmp_path, "# made by hand", "", f"org.example:thing:1.0:linux {SHA256}  # native part")
    (jar,) = read_lock(lock)
    assert jar.coordinates == "org.example:thing:1.0:linux"
    assert jar.path == Path("org.example/thing/1.0/thing-1.0-linux.jar")


@pytest.mark.parametrize(
    "line", ["org.example:thing", f"org.example:thing {SHA256}", f"../x:thing:1 {SHA256}", "a:b:1 f00"]
)
def test_a_malformed_line_of_a_lock_is_named(tmp_path: Path, line: str):
    with pytest.raises(JarError, match=r"some\.lock:2: .* is not `group:artifact:version"):
        read_lock(lock_of(tmp_path, "# first", line))


def test_an_unreadable_lock_is_named(tmp_path: Path):
    with pytest.raises(JarError, match=r"absent\.lock: the lock of the jars cannot be read"):
        read_lock(tmp_path / "absent.lock")


def test_the_connector_lock_is_the_set_that_is_known_to_run():
    assert [jar.coordinates for jar in read_lock(CONNECTOR_LOCK)] == [
        "org.apache.commons:commons-pool2:2.13.1",
        "org.apache.kafka:kafka-clients:3.9.2",
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.2.0",
    ]


@pytest.mark.parametrize("says", ["1.8.0_392", "11.0.22", "16.0.2"])
def test_a_java_that_is_too_old_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str):
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{says}\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaError, match="Java 17 or newer is needed") as refused:
        find_java()
    assert says in str(refused.value)


def test_a_missing_java_is_said_with_where_it_was_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaError, match=r"no java on JAVA_HOME .*: Java 17 or newer is needed"):
        find_java()


def test_a_controller_without_java_says_so_in_a_line_before_anything_else_is_tried(tmp_path: Path):
    """It neither waits for brokers nor starts Spark."""
    command = [sys.executable, "-c", "from streaming.cli import main; main()", "run", "--metrics-port=0"]
    done = subprocess.run(
        command,
        env=os.environ | {"JAVA_HOME": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == REFUSED
    first, second = done.stderr.splitlines()
    assert "metrics and health at" in first
    assert second.startswith(f"Error: no java on JAVA_HOME ({tmp_path}): Java 17 or newer is needed")
