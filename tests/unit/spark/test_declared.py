"""Tables whose files are replaced while Spark learns their columns."""

from typing import Any, cast

import pytest

from thetastream.spark.tables.declared import declare, find_declared
from thetastream.spark.tables.stamp import NotReady


class Frame:
    """A DataFrame that was read."""

    def select(self, *_: str) -> "Frame":
        return Frame()


class Source:
    """A table that fails as many times as there are ``stamps``: what it looks like after each failure."""

    def __init__(self, *stamps: str | NotReady | None) -> None:
        self.stamps, self.n_reads = list(stamps), 0

    def read(self, _: Any) -> Frame:
        self.n_reads += 1
        if self.stamps:
            raise OSError("not a Parquet file")
        return Frame()

    def stamp(self, _: Any) -> str | None:
        found = self.stamps.pop(0)
        if isinstance(found, NotReady):
            raise found
        return found


def declare_source(source: Source) -> Any:
    return declare(cast("Any", source), cast("Any", None))


def test_a_table_is_read_again_while_its_files_change() -> None:
    source = Source("one", NotReady("being written"), "two")
    assert find_declared(declare_source(source)) is cast("Any", source)
    assert source.n_reads == 4


@pytest.mark.parametrize(
    ("stamps", "n_reads"),
    [(("one", "one", "two"), 2), ((None, "one"), 1), ((NotReady("gone"), NotReady("gone"), "one"), 2)],
)
def test_a_table_that_stays_as_it_is_raises_the_error_of_spark(stamps: Any, n_reads: int) -> None:
    source = Source(*stamps)
    with pytest.raises(OSError, match="not a Parquet file"):
        declare_source(source)
    assert source.n_reads == n_reads
