"""Joins with versions: what a condition may be if right tuples are versions of their keys.

    each key column of v = an expression of the left stream, and v.ts <= o.ts

A left tuple has the latest version of its key, whatever the other columns are. So nothing else of a version
may decide whether it is a partner: an older version would stand for one that fails.
"""

from thetastream.conditions import Phrase, find_comparisons
from thetastream.conditions.names import find_references
from thetastream.core.columns import VERSION, VERSION_GONE, VERSION_ORDER
from thetastream.core.errors import QueryError
from thetastream.lowering.domains import quote
from thetastream.lowering.event_time import find_column
from thetastream.lowering.query import Query, Resolver, Stream


def compute_version(stream: Stream) -> list[tuple[str, str]]:
    """Return the block columns that say which versions count, and their SQL. There are none without versions.

    >>> from thetastream.core.condition import VersionRule
    >>> compute_version(Stream("v", (), versions=VersionRule(("k",), "n")))
    [('q', '`v`.`_version`.`sequence`'), ('gone', 'coalesce(`v`.`_version`.`deleted`, false)')]
    """
    rule, column = stream.versions, f"{quote(stream.alias)}.{quote(VERSION)}"
    if rule is None:
        return []
    found = [] if rule.sequence is None else [(VERSION_ORDER, f"{column}.`sequence`")]
    return [*found, (VERSION_GONE, f"coalesce({column}.`deleted`, false)")]


def find_versions_problem(query: Query, resolver: Resolver, drops_replaced: bool) -> QueryError | None:
    """Return an error if the condition is not that of an as-of join with versions, else None.

    ``drops_replaced`` says whether the latest right tuple of each key is the only partner of a left tuple.
    """
    left, right = query.streams
    if right.versions is None:
        return None
    alias, named = right.alias, set[str]()
    hint = write_as_of(left, right)
    for conjunct in query.conjuncts:
        if alias not in find_references(conjunct, query.aliases):
            continue
        key = _find_key(conjunct, query, resolver)
        if key is None:
            continue  # It bounds event times, or ``drops_replaced`` is false.
        if key not in right.versions.key:
            what = f"{conjunct.text!r} would choose among the versions of a row"
            return QueryError("VERSIONS", f"{what}; {hint}, and filter the results")
        named.add(key)
    missing = [name for name in right.versions.key if name not in named]
    if missing:
        what = f"the versions of {alias!r} are those of {', '.join(right.versions.key)}"
        return QueryError("VERSIONS", f"{what}, and nothing equals {', '.join(missing)}; {hint}")
    if not drops_replaced:
        what = f"a tuple of {left.alias!r} has the latest version of {alias!r} at its event time"
        return QueryError("VERSIONS", f"{what}, and this join asks for other ones; {hint}")
    return None


def _find_key(conjunct: Phrase, query: Query, resolver: Resolver) -> str | None:
    """Find the column of the right stream that a conjunct tests alone or compares by an equality.

    Another expression of the right stream counts as its text. Returns None for comparisons of both streams
    that are no equalities.
    """
    left, right = query.streams
    comparisons = find_comparisons(conjunct)
    if find_references(conjunct, query.aliases) == (right.alias,):
        return conjunct.text
    if len(comparisons) != 1 or comparisons[0].op not in ("=", "<=>"):
        return None
    one = comparisons[0]
    for mine, theirs in ((one.f, one.g), (one.g, one.f)):
        if find_references(theirs, query.aliases) == (left.alias,):
            column = find_column(mine, right, resolver.is_case_sensitive)
            return mine.text if column is None or one.op == "<=>" else column
    return None


def write_as_of(left: Stream, right: Stream) -> str:
    """Write how a stream of versions is joined."""
    named = [] if right.versions is None else right.versions.key
    keys = " AND ".join(f"{left.alias}.{name} = {right.alias}.{name}" for name in named)
    mine, theirs = (f"{stream.alias}.{stream.event_time or 'ts'}" for stream in (left, right))
    return f'join it on="{keys} AND {theirs} <= {mine}" with how=th.Nearest(1, by="{mine} - {theirs}")'
