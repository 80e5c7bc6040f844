"""A real S3-compatible object store on loopback, Versity's gateway over a directory; for the tests.

    with ObjectStore(Path("/tmp/s"), program="versitygw", buckets=["mine"]) as store:
        checkpoint = "s3a://mine/checkpoint"  # with `store.spark_conf`, `KEYS` as environment, and the jars of `S3_LOCK`

It refuses a conditional write (`If-None-Match`) of a file that exists. `program` is the server's program.
"""

from collections.abc import Iterable
from pathlib import Path

from deploy.local.processes import LOCKS, free_ports
from deploy.local.prometheus import HttpServer

S3_LOCK = LOCKS / "s3.lock"
"""Hadoop's S3 file system of the version that pyspark has, and what its pom names: Amazon's SDK (686 MB) and its input streams."""
KEYS = {"AWS_ACCESS_KEY_ID": "trimtab-test", "AWS_SECRET_ACCESS_KEY": "trimtab-test"}
"""A client's environment. The keys are no secret: only this machine reaches the server."""
_REGION = "us-east-1"


class ObjectStore(HttpServer):
    """A server with these buckets; its data and log are in `directory`."""

    name = "versitygw"
    ready_path = "/health"
    ready_timeout_s = 30.0

    def __init__(self, directory: Path, *, program: str, buckets: Iterable[str]) -> None:
        super().__init__(directory, port=free_ports(1)[0])
        self._program = program
        self._buckets = tuple(buckets)

    @property
    def spark_conf(self) -> dict[str, str]:
        """What `spark.extra` needs for a server that is not Amazon's."""
        return {
            "spark.hadoop.fs.s3a.endpoint": self.url,
            "spark.hadoop.fs.s3a.endpoint.region": _REGION,
            "spark.hadoop.fs.s3a.path.style.access": "true",
        }

    def _prepare(self) -> list[str]:
        """A bucket is a directory. Attributes of files are in another one, because not every disk has extended attributes."""
        data, attributes = self._directory / "buckets", self._directory / "attributes"
        for made in (attributes, *(data / bucket for bucket in self._buckets)):
            made.mkdir(parents=True)
        listening = ["--port", f"127.0.0.1:{self._port}", "--region", _REGION, "--health", self.ready_path]
        return [self._program, *listening, "--quiet", "posix", "--sidecar", str(attributes), str(data)]

    def _environment(self) -> dict[str, str]:
        return {
            "ROOT_ACCESS_KEY": KEYS["AWS_ACCESS_KEY_ID"],
            "ROOT_SECRET_KEY": KEYS["AWS_SECRET_ACCESS_KEY"],
        }
