"""``th.Table`` declares a table that joins with streams: where its rows come from, and how it changes."""

import inspect
import os
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from functools import reduce
from pathlib import Path
from typing import Any, TypeAlias

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, TimestampNTZType, TimestampType

from thetastream.core.arguments import describe_given, refuse_non_integer, refuse_non_text
from thetastream.core.columns import HIDDEN
from thetastream.core.errors import QueryError
from thetastream.core.folder import is_uri
from thetastream.core.spans import Duration, read_positive_span, read_span
from thetastream.lowering.domains import quote
from thetastream.spark.tables.stamp import stamp_delta, stamp_files, stamp_frame

TableSource: TypeAlias = DataFrame | Callable[[SparkSession], DataFrame] | str | Path
"""A batch DataFrame, a function that reads one, or the path or URI of a table."""
VALID_TO = "valid to"
"""The column with the time at which a row ends to be valid. The name is no identifier."""
_FAR_FUTURE = "+200000-01-01"
FILE_FORMATS = ("parquet", "csv", "json", "orc", "avro", "text")
"""The formats whose tables are folders of files."""
_EXAMPLES = {"format": 'format="delta"', "valid_from": 'valid_from="since"'}
"""How the arguments that are texts are written."""


@dataclass(frozen=True, eq=False)
class Table:
    """A table that joins with streams, and that may change while a query runs.

    Give it to ``th.join``, ``th.plan`` or ``th.sql`` as one of the inputs, in place of a batch DataFrame.
    Its rows are staged with an index, as versions. Each epoch of a query reads one version of a table for all
    its rows. An epoch that runs again reads the same version as before.

    Parameters
    ----------
    source : DataFrame, function, str or Path, optional
        A batch DataFrame; a function that takes the Spark session and returns one; or the path or URI of the
        table. It may be left out if ``format`` and ``options`` name the table, as for ``jdbc``.
    format : str, optional
        The format of a path, as Spark names it. By default, it is ``parquet``.
    options : mapping of str, optional
        Options with which Spark reads the format.
    every : str or timedelta, optional
        How often the program looks whether the table has changed, while a query reads it. A changed table is
        staged as a new version, which later epochs read. By default, a table is staged when the DataFrame of
        the join is built, and after that only ``th.stage`` stages it again.
    keep : int
        The number of newest versions that stay in the folder. Those that an epoch may read again stay too.
    max_age : str or timedelta, optional
        The query ends with TABLE_STALE if a new epoch would read a version that was last equal to its source
        so long ago. By default, it goes on with the last version.
    key : str or sequence of str, optional
        The columns that name what a row is about. A version in which two rows have the same key is refused
        (TABLE_KEYS). With ``valid_from``, two rows of one key must differ in this column.
    valid_from : str, optional
        The column with the time from which on a row is valid, until the next row of its key. A tuple meets
        the row of each key that is valid at its event time, and no other. In SQL, ``FOR SYSTEM_TIME AS OF``
        may name another time of the tuple. Rows in which this column or the key is NULL are left out. It
        needs ``key``.

    Raises
    ------
    QueryError
        BAD_VALUE, INVALID_DURATION, or VALID_FROM if ``valid_from`` has no ``key``.

    Examples
    --------
    >>> import thetastream as th
    >>> th.Table("/lake/prices", every="1 minute", keep=5)
    Table('/lake/prices', every='1 minute', keep=5)
    """

    source: TableSource | None = None
    _: KW_ONLY
    format: str | None = None
    options: Mapping[str, object] = field(default_factory=dict)
    every: Duration | None = None
    keep: int = 3
    max_age: Duration | None = None
    key: str | Sequence[str] = ()
    valid_from: str | None = None
    stagings: dict[tuple[str, str], Any] = field(default_factory=dict, init=False, repr=False)
    """The ``TableStaging`` of each join that this program has planned, by the name of its versions and by the
    root of their folder."""
    _token: str = field(default_factory=lambda: uuid.uuid4().hex, init=False, repr=False)

    def __post_init__(self) -> None:
        is_path = isinstance(self.source, str | Path) and self.source != ""
        if not is_path and not isinstance(self.source, DataFrame) and not callable(self.source):
            if self.source is not None or self.format is None:
                what = "source must be a batch DataFrame, a function that returns one, or a path"
                raise QueryError("BAD_VALUE", f"{what}, not {describe_given(self.source)}")
        elif not is_path and (self.format is not None or self.options):
            raise QueryError("BAD_VALUE", "format and options belong to a path; leave them out")
        self._check_types()
        if isinstance(self.source, DataFrame) and self.source.isStreaming:
            raise QueryError(
                "BAD_VALUE", "source must be a batch DataFrame, and this is a stream; join it as it is"
            )
        refuse_non_integer(self.keep, "keep", 1)
        for name, value in (("every", self.every), ("max_age", self.max_age)):
            if value is not None:
                what = f'{name} must be a positive span of time such as "10 seconds"'
                read_positive_span(value, what, "INVALID_DURATION")
        if self.every_s is not None and self.max_age_s is not None and self.max_age_s <= self.every_s:
            what = f"max_age ({self.max_age}) must be longer than every ({self.every})"
            raise QueryError("BAD_VALUE", f"{what}: a version is as old as every before the next comparison")
        if self.valid_from is not None and not self.keys:
            what = f"valid_from={self.valid_from!r} needs key=, the columns whose rows replace each other"
            raise QueryError("VALID_FROM", what)

    def _check_types(self) -> None:
        """Refuse arguments that are of another type than the one that is documented."""
        if callable(self.source) and not isinstance(self.source, DataFrame) and not _takes_one(self.source):
            what = (
                "the function of a table must take one argument, the Spark session, as in lambda spark: ..."
            )
            raise QueryError("BAD_VALUE", what)
        for name, value in (("format", self.format), ("valid_from", self.valid_from)):
            if value is not None:
                refuse_non_text(value, name, _EXAMPLES[name])
        is_list = isinstance(self.key, str | Sequence)
        if not is_list or not all(isinstance(one, str) and one for one in self.keys):
            what = 'key must be the name of a column or a list of names, as in ["currency"]'
            raise QueryError("BAD_VALUE", f"{what}, not {describe_given(self.key)}")
        if not isinstance(self.options, Mapping) or not all(isinstance(one, str) for one in self.options):
            what = 'options must be a dict of the options of Spark, as in {"header": True}'
            raise QueryError("BAD_VALUE", f"{what}, not {describe_given(self.options)}")

    def __repr__(self) -> str:
        shown = [repr(self.source)] if isinstance(self.source, str | Path) else [self.place]
        for one in fields(self)[1:]:
            value, default = getattr(self, one.name), {} if one.name == "options" else one.default
            if one.repr and value != default:
                shown.append(f"{one.name}={value!r}")
        return f"Table({', '.join(shown)})"

    @property
    def every_s(self) -> float | None:
        """``every`` in seconds."""
        return None if self.every is None else _count_seconds(self.every)

    @property
    def max_age_s(self) -> float | None:
        """``max_age`` in seconds."""
        return None if self.max_age is None else _count_seconds(self.max_age)

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns of ``key``."""
        return (self.key,) if isinstance(self.key, str) else tuple(self.key)

    @property
    def named_columns(self) -> tuple[str, ...]:
        """The columns that ``key`` and ``valid_from`` name."""
        return self.keys if self.valid_from is None else (*self.keys, self.valid_from)

    @property
    def identity(self) -> str:
        """What tells this table from others. It is the same in all programs if the table has a name."""
        if isinstance(self.source, str | Path) or self.source is None:
            return repr((self._path, self.format, sorted(self.options.items()), self.keys, self.valid_from))
        return self._token

    def read(self, spark: SparkSession) -> DataFrame:
        """Read the rows of now."""
        if isinstance(self.source, DataFrame):
            stamp_frame(self.source)  # Spark lists the files of the DataFrame anew.
            return self.source
        if callable(self.source):
            frame = self.source(spark)
            if not isinstance(frame, DataFrame) or frame.isStreaming:
                what = "the function of a table must return a batch DataFrame of Spark"
                found = "a stream" if isinstance(frame, DataFrame) else describe_given(frame)
                raise QueryError("BAD_VALUE", f"{what}, not {found}")
            return frame
        reader = spark.read.format(self.format or FILE_FORMATS[0])
        for name, value in self.options.items():
            reader = reader.option(name, value)  # type: ignore[arg-type]
        return reader.load() if self._path is None else reader.load(self._path)

    def stamp(self, spark: SparkSession) -> str | None:
        """Describe the source without its rows; None if only its rows say whether it has changed.

        Raises
        ------
        NotReady
            If another program is writing the table.
        """
        if isinstance(self.source, DataFrame):
            roots = stamp_frame(self.source)
            return None if roots is None else stamp_files(spark, roots)
        if self._path is None or callable(self.source):
            return None
        format_ = (self.format or FILE_FORMATS[0]).lower()
        if format_ == "delta":
            return stamp_delta(spark, self._path)
        return stamp_files(spark, [self._path]) if format_ in FILE_FORMATS else None

    def check_columns(self, frame: DataFrame, alias: str) -> None:
        """Refuse a table without the columns of ``key`` and ``valid_from``.

        Raises
        ------
        QueryError
            UNKNOWN_COLUMN; or VALID_FROM if the column holds no times.
        """
        types = {one.name.casefold(): one.dataType for one in frame.schema}
        for name in self.named_columns:
            if name.casefold() not in types:
                word = "valid_from" if name == self.valid_from else "key"
                what = (
                    f"{word} names {name!r}, and table {alias!r} has the columns {', '.join(frame.columns)}"
                )
                raise QueryError("UNKNOWN_COLUMN", what)
        if self.valid_from is None:
            return
        type_ = types[self.valid_from.casefold()]
        if not isinstance(type_, TimestampType | TimestampNTZType | DateType):
            what = f"valid_from names {self.valid_from!r} of table {alias!r}, which is {type_.simpleString()}"
            raise QueryError("VALID_FROM", f"{what}; it must be TIMESTAMP, TIMESTAMP_NTZ or DATE")

    def add_end(self, frame: DataFrame) -> DataFrame:
        """Add the column ``VALID_TO``, if rows replace each other.

        Two rows of one key that begin at one time would be a matter of chance. They end the job.
        """
        if self.valid_from is None:
            return frame
        began, keys = F.col(quote(self.valid_from)), [F.col(quote(name)) for name in self.keys]
        known = reduce(DataFrame.where, (one.isNotNull() for one in (*keys, began)), frame)
        following = F.lead(began).over(Window.partitionBy(*keys).orderBy(began))
        twice = F.raise_error(F.lit(f"[TABLE_KEYS] two rows have one key and one {self.valid_from}"))
        far = F.expr(f"CAST('{_FAR_FUTURE}' AS {frame.select(began).schema[0].dataType.simpleString()})")
        end = F.when(following == began, twice).otherwise(F.coalesce(following, far))
        return known.select("*", end.alias(VALID_TO, metadata={HIDDEN: True}))

    def check_keys(self, frame: DataFrame, alias: str) -> None:
        """Refuse rows if two of them have the same key at one time. A key that is NULL names nothing.

        Raises
        ------
        QueryError
            TABLE_KEYS.
        """
        if not self.keys:
            return
        keys = [F.col(quote(name)) for name in self.named_columns]
        named = reduce(DataFrame.where, (key.isNotNull() for key in keys), frame)
        twice = named.groupBy(*keys).count().where("count > 1").select(*keys)
        found = twice.limit(1).collect()
        if found:
            which = ", ".join(f"{name}={value}" for name, value in found[0].asDict().items())
            what = f"table {alias!r} has two rows with {which}"
            raise QueryError("TABLE_KEYS", f"{what}, and key= allows one; remove one of them")

    def describe(self) -> str:
        """Describe the table, and how its changes are followed, in a few words."""
        follows = "staged when the DataFrame is built"
        if self.every is not None:
            format_ = self.format or FILE_FORMATS[0]
            is_stamped = isinstance(self.source, str | Path) and format_ in (*FILE_FORMATS, "delta")
            by = "its files" if is_stamped else "its rows"
            by = "its version" if format_ == "delta" else by
            follows = f"followed every {self.every} by {by}, {self.keep} versions are kept"
        if self.max_age is not None:
            follows += f", ends when older than {self.max_age}"
        if self.keys:
            follows += f", key {', '.join(self.keys)}"
        if self.valid_from is not None:
            follows += f", valid from {self.valid_from}"
        return f"{self.place}, {follows}"

    @property
    def _path(self) -> str | None:
        """The path on this machine as an absolute one, or a URI."""
        if not isinstance(self.source, str | Path):
            return None
        text = str(self.source)
        return text if is_uri(text) or re.match(r"[a-z][a-z0-9+.-]+:", text) else os.path.abspath(text)

    @property
    def place(self) -> str:
        """Where the rows are, in words."""
        if isinstance(self.source, DataFrame):
            return "a DataFrame"
        if callable(self.source):
            return f"function {getattr(self.source, '__qualname__', repr(self.source))}"
        return f"{self.format or FILE_FORMATS[0]} {self._path or 'of options'}"


def _count_seconds(span: Duration) -> float:
    """Return the seconds of a span; 0 if it is none."""
    found = read_span(span)
    return 0.0 if found is None else found.total_seconds()


def _takes_one(function: Callable[..., object]) -> bool:
    """Whether a function can be called with one argument; True if Python does not know."""
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        return False
    except ValueError:
        return True  # It is written in C.
    return True
