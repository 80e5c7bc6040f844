"""Write a jar lock: the runtime closure of some coordinates, with the SHA-256 of every file.

For the maintainer who raises a version; users only read locks (`streaming.spark.jars`). It asks Maven, with the user's own
settings, so that no host name is needed here. What it downloads is trusted on first use: review the difference.
"""

import argparse
import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from streaming.spark.jars import Jar

_MAVEN_TIMEOUT_S = 1800.0
"""Hundreds of jars, from an empty cache."""


def closure(coordinates: Sequence[str], *, transitive: bool = True, bom: str | None = None) -> list[Jar]:
    """Return the jars of `group:artifact:version` coordinates, and with `transitive` all they need to run, sorted.

    `bom`, a coordinate as well, names a pom whose managed versions hold for all jars. Raises ValueError for a malformed
    coordinate and CalledProcessError if Maven fails, after Maven has printed the reason.
    """
    with tempfile.TemporaryDirectory(prefix="trimtab-lock-") as folder:
        root, project = Path(folder, "jars"), Path(folder, "pom.xml")
        project.write_text(_project(coordinates, transitive=transitive, bom=bom), encoding="utf-8")
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", "-Dmdep.useRepositoryLayout=true"]
        command = ["mvn", "-q", "-B", "-ntp", "-f", str(project), *goal, f"-DoutputDirectory={root}"]
        subprocess.run(command, check=True, stdout=sys.stderr, timeout=_MAVEN_TIMEOUT_S)
        return sorted(_lock(file, root) for file in root.rglob("*.jar"))


def _project(coordinates: Sequence[str], *, transitive: bool, bom: str | None) -> str:
    everything = "<exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"
    exclusions = "" if transitive else f"<exclusions>{everything}</exclusions>"
    dependencies = ""
    for text in coordinates:
        group, artifact, version = text.split(":")
        dependencies += (
            f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
            f"<version>{version}</version>{exclusions}</dependency>"
        )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>trimtab</groupId><artifactId>lock</artifactId><version>1</version><packaging>pom</packaging>"
        f"{_managed_versions(bom)}"
        f"<dependencies>{dependencies}</dependencies></project>"
    )


def _managed_versions(bom: str | None) -> str:
    """The part of a project that imports the versions of a bill of materials."""
    if bom is None:
        return ""
    group, artifact, version = bom.split(":")
    return (
        f"<dependencyManagement><dependencies><dependency><groupId>{group}</groupId><artifactId>{artifact}"
        f"</artifactId><version>{version}</version><type>pom</type><scope>import</scope></dependency>"
        "</dependencies></dependencyManagement>"
    )


def _lock(file: Path, root: Path) -> Jar:
    """Read the coordinates off a path in Maven's repository layout."""
    *group, artifact, version, name = file.relative_to(root).parts
    classifier = name.removeprefix(f"{artifact}-{version}").removesuffix(".jar").removeprefix("-")
    return Jar(".".join(group), artifact, version, classifier, hashlib.sha256(file.read_bytes()).hexdigest())


def _main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m deploy.local.lock_jars", description="Write a jar lock to stdout."
    )
    parser.add_argument("coordinates", metavar="GROUP:ARTIFACT:VERSION", nargs="+")
    parser.add_argument(
        "--no-transitive", action="store_true", help="only these jars, without their dependencies"
    )
    parser.add_argument("--bom", metavar="GROUP:ARTIFACT:VERSION", help="a pom whose managed versions apply")
    args = parser.parse_args()
    jars = closure(args.coordinates, transitive=not args.no_transitive, bom=args.bom)
    print("# Written by: python -m deploy.local.lock_jars", *sys.argv[1:])
    for jar in jars:
        print(jar.coordinates, jar.sha256)


if __name__ == "__main__":
    _main()
