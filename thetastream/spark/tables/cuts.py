"""Cuts the rows of a large table by ranges of a key, and says when a table is too large for hosts.

up to CUT_BYTES       rows are staged where they are read
more                  rows are cut by the first key of the index, so that runs do not overlap
more than a cache     tuples are divided among hosts by the same key
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from thetastream.core.errors import QueryError
from thetastream.engine.table_partitions import Extents, Partitioning
from thetastream.lowering.domains import quote
from thetastream.runtime.lookup_steps import LookupFlow
from thetastream.runtime.table_folder import TableFolder
from thetastream.runtime.table_versions import Version
from thetastream.spark.session.configure import count_partitions

CUT_BYTES = 1 << 26
"""A table of so many bytes is cut by range before it is staged."""
RANGE_BYTES = 1 << 25
"""The bytes of a range. A version that changes a row writes the whole range of the row."""
SAMPLED = 100
"""For each range, so many keys are drawn to find where to cut."""


def divide_table(
    flow: LookupFlow, flat: DataFrame, folder: TableFolder, before: Version | None, nbytes: int | None
) -> tuple[DataFrame, tuple[str, ...]]:
    """Divide the rows of a table among tasks, a large table by the first key of its index.

    The runs of a large table do not overlap then. A tuple touches the pages of one or two of them, so a table
    that is larger than the memory of a host can be mapped. To cut a small table would cost more than it
    saves, because its rows are sent to other tasks. A version is cut where the version before was cut, so
    ranges in which nothing has changed have the same runs.

    Parameters
    ----------
    flow : LookupFlow
    flat : DataFrame
        The rows of the table as columns of blocks.
    folder : TableFolder
    before : Version or None
        The version before.
    nbytes : int or None
        About how many bytes the rows have; None if this is not known.

    Returns
    -------
    tuple of DataFrame and tuple of str
        The divided rows, and the values of the key at which they are cut.
    """
    name, n_tasks = _find_cut_column(flow), count_partitions(flat.sparkSession)
    n_partitions = 1 if nbytes is None else folder.count_partitions(nbytes, n_tasks)
    if name is None or nbytes is None or (nbytes < CUT_BYTES and n_partitions == 1):
        return flat.coalesce(n_tasks), ()
    # The rows of a range that is too large for one run are divided by chance. If there are many, cut anew.
    is_fit = before is not None and 2 * len(before.runs) <= 3 * (len(before.cuts) + 1)
    is_fit = before is not None and is_fit and not is_coarse(before.cuts, n_partitions)
    cuts = before.cuts if before is not None and is_fit else ()
    n_ranges = max(n_tasks, n_partitions, -(-nbytes // RANGE_BYTES))
    cuts = cuts or _choose_cuts(flat, name, n_ranges)
    key = F.col(quote(name))
    ends = [F.lit(text).cast(flat.schema[name].dataType) for text in cuts]
    return flat.repartitionById(len(cuts) + 1, _write_range(key, ends, 0)), cuts


def _find_cut_column(flow: LookupFlow) -> str | None:
    """Find the column of the block by which a large table is cut; None if its index has no key."""
    lookup = flow.lookup
    places = (*lookup.plan.access.group, *lookup.plan.access.ranges)[:1]
    names = [lookup.plan.condition.sides[lookup.plan.stored].keys[place - 1].column for place in places]
    return names[0] if names else None


def is_coarse(cuts: Sequence[str], n_partitions: int) -> bool:
    """Whether a table is cut into much fewer ranges than tuples have partitions."""
    return n_partitions > 1 and n_partitions > 2 * (len(cuts) + 1)


def _choose_cuts(flat: DataFrame, name: str, n_ranges: int) -> tuple[str, ...]:
    """Choose the values at which a key is cut into ranges of about as many rows. This runs a job."""
    key = F.col(quote(name))
    drawn = flat.select(key).orderBy(F.rand(0)).limit(SAMPLED * n_ranges).orderBy(key)
    texts = [row[0] for row in drawn.select(key.cast("string")).collect()]
    chosen = [texts[len(texts) * n // n_ranges] for n in range(1, n_ranges)] if texts else []
    return tuple(dict.fromkeys(text for text in chosen if text is not None))


def _write_range(key: Column, ends: Sequence[Column], first: int) -> Column:
    """Write the number of the range of a key, by bisection. The first range has the number ``first``."""
    if not ends:
        return F.lit(first)
    half = len(ends) // 2
    lower = _write_range(key, ends[:half], first)
    return F.when(key < ends[half], lower).otherwise(_write_range(key, ends[half + 1 :], first + half + 1))


def find_size_problem(
    flow: LookupFlow, folder: TableFolder, version: Version, n_partitions: int
) -> QueryError | None:
    """Return an error if the tuples of some partition may meet more of a table than a host keeps.

    Parameters
    ----------
    flow : LookupFlow
    folder : TableFolder
    version : Version
        One that is staged.
    n_partitions : int
        The number of partitions of the tuples.
    """
    room = folder.cache_bytes
    if not folder.has_copies or version.nbytes <= room:
        return None
    partitioning, extents = Partitioning.of(flow.lookup.plan), Extents(version.extents)
    hint = "give each host more room (table_cache=)"
    if partitioning is None:
        why = "no equality and no band of the condition divides its rows among hosts"
        hint += ", or add a conjunct that does"
    elif folder.asked == 1:
        why = "th.Replicated() looks tuples up in the whole table"
        hint += ", or leave model out"
    elif n_partitions == 1:
        why = "the query began with a smaller version, and does not divide its tuples among hosts"
        hint = "start the query again"
    else:
        met = max(partitioning.measure(extents, partitioning.find_edges(extents, n_partitions)))
        if met <= room:
            return None
        why = f"tuples with nearly equal keys may meet {met:,} bytes of it: many rows have one key, or "
        why += f"ranges that are long beside {_find_cut_column(flow)!r}"
        hint += ", or add an equality whose values differ more"
    what = f"staged, table {flow.table.alias!r} has {version.nbytes:,} bytes, and a host keeps {room:,}"
    return QueryError("TABLE_TOO_LARGE", f"{what}: {why}; {hint}")
