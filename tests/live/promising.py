"""What a store does with a checkpoint's files: `python -m tests.live.promising URL NAME=VALUE...` prints it as JSON.

In a process of its own, because the file system's jars come with the start of a JVM; the values are Spark's configuration.
"""

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from pyspark.sql import SparkSession

from streaming.spark.files import Files, UnsafeStore, require_promises

RACERS, ROUNDS = 8, 40
PATIENCE_S = 60.0


def main(location: str, conf: dict[str, str]) -> None:
    """Check the promises, and if they are kept let threads race for files."""
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    for name, value in conf.items():
        builder = builder.config(name, value)
    files = Files(builder.getOrCreate(), location)
    try:
        require_promises(files)
    except UnsafeStore as error:
        said: dict[str, object] = {"refused": str(error), "left": files.names()}
    else:
        said = {"refused": None, "left": files.names()}
        said["winners"] = [race(files, number) for number in range(ROUNDS)]
    sys.stdout.write(f"{json.dumps(said)}\n")


def race(files: Files, number: int) -> list[bool]:
    """Let threads make a file at the same moment; for each one that made it, whether the file has what this one wrote."""
    claim, together = f"start-{number}/claim", Barrier(RACERS)

    def make(racer: int) -> int | None:
        together.wait(PATIENCE_S)
        try:
            files.write_new(claim, b"%d" % racer)
        except FileExistsError:
            return None
        return racer

    with ThreadPoolExecutor(RACERS) as pool:
        winners = [racer for racer in pool.map(make, range(RACERS)) if racer is not None]
    return [files.read(claim) == b"%d" % racer for racer in winners]


if __name__ == "__main__":
    main(sys.argv[1], dict(each.split("=", 1) for each in sys.argv[2:]))
