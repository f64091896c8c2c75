"""Times with nanoseconds, which Spark does not have, are refused before Spark cuts them."""

from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from thetastream.core.errors import QueryError
from thetastream.joins.ask.arrow_tables import read_tables

TWO = [1_700_000_000_000_000_001, 1_700_000_000_000_000_999]
"""Two events that are 998 ns apart."""


class Session:
    """A session that takes each table as it is."""

    def createDataFrame(self, table: Any, schema: Any = None) -> Any:
        return table


STAMPS = pa.array(TWO, pa.timestamp("ns"))
TABLES = {
    "pandas": pd.DataFrame({"ts": pd.to_datetime(TWO)}),
    "pandas with a zone": pd.DataFrame({"ts": pd.to_datetime(TWO, utc=True)}),
    "pandas spans": pd.DataFrame({"ts": pd.to_timedelta(TWO)}),
    "Arrow": pa.table({"ts": STAMPS}),
    "Arrow with a zone": pa.table({"ts": pa.array(TWO, pa.timestamp("ns", "UTC"))}),
    "an Arrow time of day": pa.table({"ts": pa.array([1, 999], pa.time64("ns"))}),
    "a struct": pa.table({"ts": pa.StructArray.from_arrays([STAMPS], ["inner"])}),
    "a list": pa.table({"ts": pa.ListArray.from_arrays([0, 2], STAMPS)}),
    "a list of fixed size": pa.table({"ts": pa.FixedSizeListArray.from_arrays(STAMPS, 2)}),
    "a list view": pa.table({"ts": pa.ListViewArray.from_arrays([0], [2], STAMPS)}),
    "a large list view": pa.table({"ts": pa.LargeListViewArray.from_arrays([0], [2], STAMPS)}),
    "a dictionary": pa.table({"ts": STAMPS.dictionary_encode()}),
    "pandas objects": pd.DataFrame({"ts": pd.to_datetime(TWO).astype(object)}),
    "pandas categories": pd.DataFrame({"ts": pd.to_datetime(TWO).astype("category")}),
    "pandas spans as objects": pd.DataFrame({"ts": pd.to_timedelta(TWO).astype(object)}),
    "pandas structs": pd.DataFrame({"ts": [{"inner": pd.Timestamp(TWO[0])}]}),
    "pandas lists": pd.DataFrame({"ts": [list(pd.to_datetime(TWO))]}),
    "before 1970": pa.table({"ts": pa.array([-1], pa.timestamp("ns"))}),
}


@pytest.mark.parametrize("name", TABLES)
def test_times_that_spark_would_cut_are_refused(name: str) -> None:
    with pytest.raises(QueryError, match=r"\[NANOSECONDS\].*'ts' of 'a'.*th.from_nanos\(\"ts\"\)") as refused:
        read_tables({"a": TABLES[name]}, Session())  # type: ignore[arg-type]
    is_pandas = isinstance(TABLES[name], pd.DataFrame)
    assert ('astype("int64")' if is_pandas else "cast(pa.int64())") in str(refused.value)


def test_whole_microseconds_pass_in_any_unit() -> None:
    micros = [1_700_000_000_000_001_000, None, -1000]
    tables = {
        "a": pa.table(
            {"ts": pa.array(micros, pa.timestamp("ns")), "t": pa.array([1, 2, 3], pa.time64("us"))}
        ),
        "b": pd.DataFrame({"ts": pd.to_datetime(["2024-11-03 01:30:00.000001", None])}),
        "c": pa.table(
            {"ts": pa.chunked_array([], pa.timestamp("ns")), "m": pa.array([], pa.map_("int8", "int8"))}
        ),
        "d": pd.DataFrame({"text": ["x", None], "mixed": [1, "x"]}).astype({"text": "category"}),
        "e": pd.DataFrame({"ts": [pd.Timestamp("2024-11-03 01:30:00.000001"), pd.NaT]}, dtype=object),
    }
    read = read_tables(tables, Session())  # type: ignore[arg-type]
    assert list(read) == ["a", "b", "c", "d", "e"]
    assert all(read[alias] is tables[alias] for alias in tables)
