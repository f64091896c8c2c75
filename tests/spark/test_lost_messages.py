"""Messages of a running chain are lost as soon as they are written, before the driver can list them."""

import shutil
import time
from pathlib import Path

import pytest

from tests.support.faults import Job, killed_at_the_end, oracle, read_committed, write_streams

EPOCH = 5


@pytest.mark.slow
@pytest.mark.parametrize("is_all", [False, True])
def test_a_query_that_lost_messages_is_exact_when_they_are_back(tmp_path: Path, is_all: bool) -> None:
    write_streams(tmp_path, 14, 150, 11)
    job = Job(str(tmp_path), chain=2, master="local[2]", cache_folder=str(tmp_path / "cache"))
    lost: dict[Path, bytes] = {}
    with killed_at_the_end(job.start()) as process:
        while process.poll() is None:
            files = sorted(Path(job.mailbox).glob(f"*/{EPOCH}/[01]"))
            if not lost and len(files) == 2:
                lost = {path: path.read_bytes() for path in files}
                if is_all:
                    shutil.rmtree(files[0].parent)
                else:
                    files[1].unlink()
            time.sleep(0.001)
        assert process.wait() == 1
    assert "[MAILBOX_DAMAGED]" in job.output
    for path, data in lost.items():
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    if "remove the newest offset" in job.output:
        for name in (f"{EPOCH + 1}", f".{EPOCH + 1}.crc"):
            (job.checkpoint / "offsets" / name).unlink()
    job.finish()
    assert read_committed(job.sink) == oracle(tmp_path)
