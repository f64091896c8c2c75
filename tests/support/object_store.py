"""An object store of its own for tests: the S3 server of moto, in a process on this machine."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pyspark
from pyarrow import fs

from tests.support.maven import find_free_port
from tests.support.servers import start_server

KEY, SECRET, REGION, BUCKET = "key", "secret", "us-east-1", "bucket"
HADOOP_AWS = "org.apache.hadoop:hadoop-aws"
START_S = 60
SERVER = """
from moto.server import main
from werkzeug.serving import WSGIRequestHandler

# Werkzeug and its base class both answer "100 Continue", and Amazon's client takes the second for the result.
WSGIRequestHandler.handle_expect_100 = lambda handler: True
main()
"""


@dataclass(frozen=True)
class ObjectStore:
    """A running server with one bucket."""

    port: int

    @property
    def endpoint(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self.port}"

    def uri(self, folder: str) -> str:
        """The URI of a folder as Arrow opens it."""
        options = f"endpoint_override={quote(self.endpoint, safe='')}&scheme=http&region={REGION}"
        return f"s3://{KEY}:{SECRET}@{BUCKET}/{folder}?{options}"

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which Arrow, boto3 and deltalake open a URI without keys and options."""
        return {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL": f"http://{self.endpoint}",
            "AWS_ALLOW_HTTP": "true",
        }

    def open(self) -> fs.S3FileSystem:
        """Open the store."""
        return fs.S3FileSystem(
            access_key=KEY,
            secret_key=SECRET,
            endpoint_override=self.endpoint,
            scheme="http",
            region=REGION,
            allow_bucket_creation=True,
        )

    def configure_spark(self, jars: Path) -> dict[str, str]:
        """The settings with which Spark opens ``s3a://bucket/...``, with the jars of hadoop-aws."""
        s3a = {
            "endpoint": f"http://{self.endpoint}",
            "endpoint.region": REGION,
            "path.style.access": "true",
            "connection.ssl.enabled": "false",
            "access.key": KEY,
            "secret.key": SECRET,
        }
        return {
            # Spark would copy what spark.jars names, and the jars have 650 MB.
            "spark.driver.extraClassPath": f"{jars}/*",
            **{f"spark.hadoop.fs.s3a.{name}": value for name, value in s3a.items()},
            "spark.hadoop.fs.AbstractFileSystem.s3a.impl": "org.apache.hadoop.fs.s3a.S3A",
        }


def find_hadoop_version() -> str:
    """Find the version of Hadoop in PySpark."""
    jars = os.path.join(os.path.dirname(pyspark.__file__), "jars")
    (jar,) = [name for name in os.listdir(jars) if name.startswith("hadoop-client-api-")]
    return jar.removeprefix("hadoop-client-api-").removesuffix(".jar")


@contextmanager
def run_object_store() -> Iterator[ObjectStore]:
    """Run a server with an empty bucket, and kill it in the end."""
    store = ObjectStore(find_free_port())
    command = [sys.executable, "-c", SERVER, "-H", "127.0.0.1", "-p", str(store.port)]
    server = start_server(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + START_S
        while not _make_bucket(store):
            assert server.poll() is None, "moto has ended; pip install 'moto[s3,server]'"
            assert time.monotonic() < end
            time.sleep(0.2)
        yield store
    finally:
        server.kill()
        server.wait()


def _make_bucket(store: ObjectStore) -> bool:
    try:
        store.open().create_dir(BUCKET)
    except OSError:
        return False
    return True
