"""A copy in a store that is not a disk takes every file below a directory, and names a file that fails."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from py4j.java_gateway import JavaObject

from streaming.spark.files import Files

ROOT = "s3a://b/c"


class Path:
    """Stands in for Hadoop's ``Path``, with the methods that are used."""

    def __init__(self, text: str) -> None:
        self._text = text

    def toString(self) -> str:  # noqa: N802  Java's
        return self._text


class Store(Files):
    """A store that is a set of file names; a copy adds a name to it."""

    is_local = False

    def __init__(self, *names: str, fails: str = "") -> None:
        self.names_there = set(names)
        copies = SimpleNamespace(FileUtil=SimpleNamespace(copy=self._copied))
        self._jvm = cast(
            "Any",
            SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(hadoop=SimpleNamespace(fs=copies)))),
        )
        self._conf = self._fs = cast("Any", self)
        self._fails = fails

    def _path(self, name: str) -> JavaObject:
        return cast("JavaObject", Path(f"{ROOT}/{name}"))

    def listFiles(self, path: Path, _recursive: bool) -> Any:  # noqa: N802, FBT001  Java's
        found = sorted(name for name in self.names_there if f"{ROOT}/{name}".startswith(path.toString()))
        statuses = [SimpleNamespace(getPath=lambda name=name: Path(f"{ROOT}/{name}")) for name in found]
        return SimpleNamespace(hasNext=lambda: bool(statuses), next=lambda: statuses.pop(0))

    def _copied(self, _fs: Any, status: Any, _other_fs: Any, to: Path, *_: Any) -> bool:
        assert status.getPath().toString().removeprefix(f"{ROOT}/") in self.names_there
        self.names_there.add(to.toString().removeprefix(f"{ROOT}/"))
        return not (self._fails and self._fails in to.toString())


def test_a_directory_is_copied_with_all_files_below_it() -> None:
    store = Store("one/state/0/1.zip", "one/state/0/SSTs/a.sst", "one/commits/0")
    store.copy("one/state", "two/state")
    assert store.names_there - {"one/state/0/1.zip", "one/state/0/SSTs/a.sst", "one/commits/0"} == {
        "two/state/0/1.zip",
        "two/state/0/SSTs/a.sst",
    }


def test_a_file_is_copied_alone() -> None:
    store = Store("one/metadata")
    store.copy("one/metadata", "two/metadata")
    assert store.names_there == {"one/metadata", "two/metadata"}


def test_a_file_that_is_not_copied_is_named() -> None:
    with pytest.raises(OSError, match=f"{ROOT}/one/commits/7 could not be copied to {ROOT}/two/commits/7"):
        Store(*(f"one/commits/{number}" for number in range(9)), fails="commits/7").copy(
            "one/commits", "two/commits"
        )
