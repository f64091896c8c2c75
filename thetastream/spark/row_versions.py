"""Streams of versions: each row is the version of its key from its event time on.

The DataFrame has the columns of the row, and ``_version`` behind them: a struct with the order of the version
and whether its key has no row any more. All columns have a mark in their metadata, and those of the key have
another one, so that a join notices if one of them is gone.
"""

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField

from thetastream.core.columns import VERSION, VERSIONS
from thetastream.core.condition import VersionRule
from thetastream.core.errors import QueryError
from thetastream.lowering.domains import quote
from thetastream.spark.analysed import DROPPING, list_values, name_operator, read_plan
from thetastream.spark.event_time import is_grouped, list_marked

_KEY = "thetastream.version_key"
"""The metadata key of the columns that identify a row."""
_N_KEYS, _SEQUENCE, _DELETED = "keys", "sequence", "deleted"
"""What the mark of ``VERSION`` describes: the number of columns of the key, and the texts of the rule."""


def mark_versions(source: DataFrame, rule: VersionRule, sequence: str, deleted: str) -> DataFrame:
    """Mark the rows of ``source`` as versions.

    ``sequence`` and ``deleted`` are columns of ``source`` with the values of the expressions of the rule, if
    it has them. They are no columns of the row.
    """
    gone = F.lit(False) if rule.deleted is None else F.col(quote(deleted))
    fields = [] if rule.sequence is None else [F.col(quote(sequence)).alias("sequence")]
    version = F.struct(*fields, gone.alias("deleted"))
    names = [name for name in source.columns if name not in (sequence, deleted)]
    columns = [_mark(source, name, name in rule.key) for name in names]
    described = {_N_KEYS: len(rule.key), _SEQUENCE: rule.sequence or "", _DELETED: rule.deleted or ""}
    return source.select(*columns, version.alias(VERSION, metadata={VERSIONS: described}))


def _mark(source: DataFrame, name: str, is_key: bool) -> Column:
    metadata = {**(source.schema[name].metadata or {}), VERSIONS: True}
    return F.col(quote(name)).alias(name, metadata={**metadata, _KEY: True} if is_key else metadata)


def find_version_rule(what: str, rows: DataFrame) -> VersionRule | None:
    """Find what rows are versions of; None if they are no versions.

    Raises
    ------
    QueryError
        VERSIONS if ``what`` is a stream of versions that has lost ``_version`` or a column of its key.
    """
    schema = rows.schema
    described = (schema[VERSION].metadata or {}).get(VERSIONS) if VERSION in schema.names else None
    if described is None:
        marked = list_marked(schema, VERSIONS)
        if not marked or is_grouped(rows):
            return None
        lost = f"{what} has columns of versions ({', '.join(marked)}) without {VERSION!r}"
        raise QueryError("VERSIONS", f"{lost}: deleted rows would stay valid; select {VERSION!r} too")
    _refuse_filters(what, rows)
    keys = tuple(list_marked(schema, _KEY))
    if len(keys) < described[_N_KEYS]:
        left = ", ".join(keys) or "none"
        lost = f"{what} has versions without all columns of their key: {left} of {described[_N_KEYS]} is left"
        raise QueryError("VERSIONS", f"{lost}; select the others too")
    return VersionRule(keys, described[_SEQUENCE] or None, described[_DELETED] or None)


def _refuse_filters(what: str, rows: DataFrame) -> None:
    """Refuse versions of which some were left out by anything else than their key. Only a classic session
    shows the plan.

    Raises
    ------
    QueryError
        VERSIONS: the version before would stay valid.
    """
    plan = read_plan(rows)
    if plan is None:
        return
    while _has_mark(list_values(plan.output()), VERSIONS):
        operator, read = name_operator(plan), list[Any]()
        if operator == "Filter":
            read = [
                one
                for one in list_values(plan.condition().references().toSeq())
                if not _has_mark([one], _KEY)
            ]
        if read or operator in DROPPING:
            why = f"a filter reads {read[0].name()!r}" if read else f"some rows were left out ({operator})"
            hint = "filter the results of the join, or the versions by columns of their key"
            raise QueryError(
                "VERSIONS", f"{what} has versions, and {why}: the ones before would stay valid; {hint}"
            )
        children = list_values(plan.children())
        if len(children) != 1:
            return
        (plan,) = children


def _has_mark(attributes: Sequence[Any], mark: str) -> bool:
    return any(f'"{mark}"' in one.metadata().json() for one in attributes)


def is_version_field(field: StructField) -> bool:
    """Whether a column says which versions count. It is no column of the row."""
    return field.name == VERSION and VERSIONS in (field.metadata or {})
