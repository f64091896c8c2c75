"""A JVM that cannot write the file in which PySpark waits for its address."""

import os
import tempfile
from pathlib import Path

import psutil
import pytest
from pyspark import SparkContext

from thetastream.core.errors import SessionError
from thetastream.spark.session import jvm

SUBMIT = """\
#!/bin/sh
: > "$(dirname "$_PYSPARK_DRIVER_CONN_INFO_PATH")/connection1.info"
exec sleep 60
"""


def test_a_full_disk_under_the_address_of_the_jvm_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PySpark waited for ever: the JVM lives on when its main thread has ended."""
    submit = tmp_path / "home" / "bin" / "spark-submit"
    submit.parent.mkdir(parents=True)
    submit.write_text(SUBMIT)
    submit.chmod(0o700)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setattr(jvm, "_STALLED_S", 0.2)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    before = {*psutil.Process().children()}
    with pytest.raises(SessionError, match=rf"\[DISK_FULL\].*into {tmp_path}, .*TMPDIR"):
        jvm.launch_without_secrets({})
    assert {*psutil.Process().children()} <= before
    assert os.listdir(tmp_path) == ["home"]
