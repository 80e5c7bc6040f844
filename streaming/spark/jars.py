"""Java archives by lock file: fetched once, checked always, never resolved at run time.

A lock is a text file with one jar a line, `group:artifact:version[:classifier] sha256`; `#` starts a comment. It
names no host: fetching obeys whatever the ordinary clients on this machine are configured to use. First comes the
Ivy that pyspark carries (needs only Java), then `mvn` where Ivy could not.

Invariants: a jar reaches the cache only after its SHA-256 was compared with the lock's; a path that `ensure`
returns was compared in this very call; nothing is fetched that the lock does not list (no transitive
dependencies). Files appear in the cache by an atomic rename, so processes may fetch at the same time, and several
locks share one cache.

It does not resolve versions or write locks (`deploy.local.lock_jars` does), and does not import pyspark.
"""

import argparse
import hashlib
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from xml.sax.saxutils import quoteattr

CONNECTOR_LOCK = Path(__file__).with_name("locks") / "spark-connector.lock"
"""Spark's Kafka connector, which the pyspark wheel lacks; give the paths to `spark.jars`."""

_VERSION_TIMEOUT_S = 60.0
JAVA_VERSION_MIN = 17
"""The oldest Java that Spark 4 and Kafka 4 start on."""

FETCH_TIMEOUT_S = 1800
"""One call of a fetching client: 300 jars took Ivy 320 s on a fast line; a hung one must not hang us for ever."""

IVY_JARS_MAX = 100
"""Ivy asks for one module after the other, about one a second; Maven, where there is one, fetches 300 in a minute."""

_TOLD_EVERY_S = 10.0
"""A fetch says as often how far it is."""

_COORDINATE = r"[A-Za-z0-9_][A-Za-z0-9._-]*"
_LINE = re.compile(
    rf"({_COORDINATE}):({_COORDINATE}):({_COORDINATE})(?::({_COORDINATE}))?\s+([0-9a-f]{{64}})"
)
_LAYOUT = "[organisation]/[artifact]/[revision]/[artifact]-[revision](-[classifier]).[ext]"
_OUTPUT_LINES_SHOWN = 25

_log = logging.getLogger(__name__)


class JarError(RuntimeError):
    """A jar could not be fetched, or is not the one that was locked."""


class JavaError(RuntimeError):
    """No Java, or one that is too old."""


@dataclass(frozen=True, slots=True, order=True)
class Jar:
    """One line of a lock. `classifier` is empty where there is none; `sha256` is lower-case hexadecimal."""

    group: str
    artifact: str
    version: str
    classifier: str
    sha256: str

    @property
    def coordinates(self) -> str:
        """The coordinates as the lock writes them."""
        return ":".join(part for part in (self.group, self.artifact, self.version, self.classifier) if part)

    @property
    def file_name(self) -> str:
        return "-".join(part for part in (self.artifact, self.version, self.classifier) if part) + ".jar"

    @property
    def path(self) -> Path:
        """Relative path in the cache, and in the folder that Ivy and Maven write to."""
        return Path(self.group, self.artifact, self.version, self.file_name)


def ensure(lock: Path, *, cache: Path | None = None) -> list[Path]:
    """Return the files of the jars that `lock` lists, in its order, fetching those the cache lacks.

    `cache` is `$XDG_CACHE_HOME/trimtab/jars` (or `~/.cache/…`) unless given. With everything cached a call only
    hashes (about 1 GB/s per core). Raises JarError for an unreadable lock, a jar that no client could fetch, and a
    file whose SHA-256 is not the locked one; JavaError where fetching needs a Java that is not there.
    """
    jars = read_lock(lock)
    root = cache if cache is not None else _default_cache()
    missing = [jar for jar in jars if not (root / jar.path).is_file()]
    if missing:
        _log.info("fetching %d of the %d jars of %s (once)", len(missing), len(jars), lock.name)
        _fetch(missing, root)
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        list(pool.map(lambda jar: _check(jar, root / jar.path), jars))
    return [root / jar.path for jar in jars]


def is_cached(lock: Path) -> bool:
    """Whether `ensure` would fetch nothing. Raises JarError for an unreadable lock."""
    return all((_default_cache() / jar.path).is_file() for jar in read_lock(lock))


def read_lock(lock: Path) -> list[Jar]:
    """Parse a lock file. Raises JarError naming the file and line."""
    try:
        lines = lock.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise JarError(f"{lock}: the lock of the jars cannot be read: {error.strerror or error}") from error
    return list(_parse(lock, lines))


def find_java() -> Path:
    """Return the `java` of `JAVA_HOME`, else of the PATH. Raises JavaError unless it is Java 17 or newer."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home, "bin")) if home else None)
    where = f"JAVA_HOME ({home})" if home else "the PATH"
    if java is None:
        raise JavaError(
            f"no java on {where}: Java {JAVA_VERSION_MIN} or newer is needed; install one or set JAVA_HOME"
        )
    try:
        asked = subprocess.run(
            [java, "-version"],
            capture_output=True,
            text=True,
            check=False,
            timeout=_VERSION_TIMEOUT_S,
            start_new_session=True,  # a Ctrl-C is for us: Java would end without an answer, as one that is too old
        )
    except subprocess.TimeoutExpired as error:
        raise JavaError(f"{java} (from {where}) does not say its version: {error}") from error
    answer = asked.stderr
    version = re.search(r'version "(?:1\.)?(\d+)', answer)
    if version is None or int(version[1]) < JAVA_VERSION_MIN:
        says = answer.strip().partition("\n")[0] or "nothing"
        raise JavaError(
            f"{java} (from {where}) says {says!r}: Java {JAVA_VERSION_MIN} or newer is needed; set JAVA_HOME"
        )
    return Path(java)


def _parse(lock: Path, lines: Sequence[str]) -> Iterator[Jar]:
    for number, line in enumerate(lines, start=1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        match = _LINE.fullmatch(text)
        if match is None:
            raise JarError(f"{lock}:{number}: {text!r} is not `group:artifact:version[:classifier] sha256`")
        group, artifact, version, classifier, sha256 = match.groups(default="")
        yield Jar(group, artifact, version, classifier, sha256)


def _default_cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "trimtab" / "jars"


def _check(jar: Jar, file: Path) -> None:
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if digest != jar.sha256:
        raise JarError(
            f"{jar.coordinates}: expected SHA-256 {jar.sha256}, found {digest} in {file}. If the lock is right, the "
            "file was damaged or replaced: delete it and run again; do not change the lock to make this pass"
        )


def _fetch(jars: Sequence[Jar], root: Path) -> None:
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=root) as folder:
        staging = Path(folder)
        problems, left = "", list(jars)
        clients: list[Callable[[Sequence[Jar], Path], str]] = [_fetch_with_ivy, _fetch_with_maven]
        # Ivy is always there, but so many jars would take it minutes
        if len(jars) > IVY_JARS_MAX and shutil.which("mvn") is not None:
            clients.reverse()
        with _telling(staging, len(jars)):
            for fetch in clients:
                problems += fetch(left, staging)
                left = [jar for jar in jars if not (staging / jar.path).is_file()]
                if not left:
                    break
        for jar in jars:
            _adopt(jar, staging, root, problems)


@contextmanager
def _telling(staging: Path, count: int) -> Iterator[None]:
    """While the block runs, say what has come; Ivy first reads the descriptions of all jars, which takes longest."""
    is_over = threading.Event()

    def tell() -> None:
        while not is_over.wait(_TOLD_EVERY_S):
            names = {name for _, _, files in os.walk(staging) for name in files}
            described_count = sum(name.startswith("ivy-") and name.endswith(".xml") for name in names)
            jars_count = sum(name.endswith(".jar") for name in names)
            _log.info("  %d descriptions, %d of %d jars", described_count, jars_count, count)

    teller = threading.Thread(target=tell, name="jars-told", daemon=True)
    teller.start()
    try:
        yield
    finally:
        is_over.set()
        teller.join(_TOLD_EVERY_S)


def _adopt(jar: Jar, staging: Path, root: Path, problems: str) -> None:
    file = staging / jar.path
    if not file.is_file():
        raise JarError(
            f"{jar.coordinates}: neither Ivy nor Maven could fetch it. Check the coordinates in the lock, the network, "
            f"and the settings of your Maven or Ivy. What they said:\n{problems}"
        )
    _check(jar, file)
    target = root / jar.path
    target.parent.mkdir(parents=True, exist_ok=True)
    file.replace(target)


def _fetch_with_ivy(jars: Sequence[Jar], staging: Path) -> str:
    """Write what Ivy can get below `staging`; return what it complained about."""
    module = staging / "ivy.xml"
    module.write_text(_ivy_module(jars), encoding="utf-8")
    command = [str(find_java()), "-Xmx256m", "-jar", str(_ivy_jar()), "-ivy", str(module)]
    command += ["-cache", str(staging / "ivy-cache"), "-retrieve", f"{staging}/{_LAYOUT}", "-types", "jar"]
    return _run("Ivy", command)


def _ivy_jar() -> Path:
    spec = find_spec("pyspark")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for file in sorted(Path(folder, "jars").glob("ivy-*.jar")):
            return file
    raise JarError("Ivy was not found among the jars of pyspark: install pyspark 4.2 (`pip install pyspark`)")


def _ivy_module(jars: Sequence[Jar]) -> str:
    """Ivy's description of what to fetch.

    Every artifact is named as a plain jar, whatever packaging its pom declares (`bundle`, `nar`); the conflict
    manager is off, because with it only the newer of two versions of one module would come.
    """
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="trimtab" module="jars"/><configurations><conf name="default"/></configurations>'
        f'<dependencies>{"".join(_ivy_dependencies(jars))}<conflict manager="all"/></dependencies></ivy-module>'
    )


def _ivy_dependencies(jars: Sequence[Jar]) -> Iterator[str]:
    for (group, artifact, version), members in groupby(
        sorted(jars), lambda jar: (jar.group, jar.artifact, jar.version)
    ):
        name = quoteattr(artifact)
        kinds = (f" m:classifier={quoteattr(jar.classifier)}" if jar.classifier else "" for jar in members)
        artifacts = "".join(f'<artifact name={name} type="jar" ext="jar"{kind}/>' for kind in kinds)
        yield (
            f"<dependency org={quoteattr(group)} name={name} rev={quoteattr(version)} "
            f'transitive="false" conf="default->master">{artifacts}</dependency>'
        )


def _fetch_with_maven(jars: Sequence[Jar], staging: Path) -> str:
    """Write what Maven can get below `staging`, with the user's own settings; return what it complained about."""
    maven = shutil.which("mvn")
    if maven is None:
        return "Maven: there is no mvn on the PATH\n"
    project = staging / "pom.xml"
    project.write_text(_maven_project(jars, staging), encoding="utf-8")
    return _run("Maven", [maven, "-q", "-B", "-ntp", "-f", str(project), "dependency:copy"])


def _maven_project(jars: Sequence[Jar], staging: Path) -> str:
    """A project whose `dependency:copy` copies exactly these jars; that goal never follows dependencies."""
    items = "".join(
        f"<artifactItem><groupId>{jar.group}</groupId><artifactId>{jar.artifact}</artifactId>"
        f"<version>{jar.version}</version><classifier>{jar.classifier}</classifier>"
        f"<outputDirectory>{(staging / jar.path).parent}</outputDirectory>"
        f"<destFileName>{jar.file_name}</destFileName></artifactItem>"
        for jar in jars
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>trimtab</groupId><artifactId>jars</artifactId><version>1</version><packaging>pom</packaging>"
        "<build><plugins><plugin><artifactId>maven-dependency-plugin</artifactId>"
        f"<configuration><artifactItems>{items}</artifactItems></configuration></plugin></plugins></build></project>"
    )


def _run(name: str, command: Sequence[str]) -> str:
    """Run a fetching client; return nothing if it succeeded, else the end of what it printed."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=FETCH_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"{name}: not done after {FETCH_TIMEOUT_S} s, stopped\n"
    if done.returncode == 0:
        return ""
    _, _, summary = done.stdout.rpartition(":: problems summary ::")
    shown = [line for line in summary.splitlines() if line.strip()][:_OUTPUT_LINES_SHOWN]
    return f"{name} ended with {done.returncode}:\n" + "\n".join(shown) + "\n"


def _main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m streaming.spark.jars", description="Fetch the jars that locks list."
    )
    parser.add_argument(
        "locks", metavar="LOCK", nargs="+", type=Path, help="lock file: coordinates and SHA-256"
    )
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        for lock in parser.parse_args(arguments).locks:
            ensure(lock)
    except (JarError, JavaError) as error:
        _log.error("%s", error)
        return 1
    sys.stdout.write(f"{_default_cache()}\n")
    return 0


if __name__ == "__main__":
    sys.exit(_main())
