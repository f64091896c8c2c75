"""The payload of a planned join: columns that travel with its keys, and the types that blocks hold for them.

    Spark type             type in blocks
    TIMESTAMP              bigint: microseconds since 1970 UTC, so that the session time zone plays no part
    year-month interval    int: months
    calendar interval      string
    VOID                   boolean
    any other type         the same type

from_block(to_block(x)) equals x, bit for bit. If the payload is exchanged, the condition stays. Block columns
are numbered anew, left before right, so the result is the plan of a join of streams that have exactly these
columns.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from thetastream.core.condition import Condition, Key, MeasuredPair, PythonPredicate, SideSpec
from thetastream.lowering.physical import Carried, PhysicalPlan
from thetastream.lowering.plain_columns import Conversion


def exchange_payload(
    plan: PhysicalPlan, carried: tuple[tuple[Carried, ...], tuple[Carried, ...]]
) -> PhysicalPlan:
    """Return the plan with these columns as the payload of the left and the right stream.

    They must include every payload column that the condition reads.
    """
    names = [
        {old.block_column: new.block_column for old in side.carried for new in mine if new.field == old.field}
        for side, mine in zip(plan.sides, carried, strict=True)
    ]
    sides = [replace(side, carried=mine) for side, mine in zip(plan.sides, carried, strict=True)]
    condition = rename_columns(plan.condition, names)
    specs = [
        replace(spec, columns=tuple(column.block_column for column in mine))
        for spec, mine in zip(condition.sides, carried, strict=True)
    ]
    condition = replace(condition, sides=(specs[0], specs[1]))
    ranking = None if plan.ranking is None else plan.ranking.rename(names)
    return replace(plan, sides=(sides[0], sides[1]), condition=condition, ranking=ranking)


def rename_columns(condition: Condition, names: Sequence[Mapping[str, str]]) -> Condition:
    """Return the condition with new names of some columns of each side."""
    left, right = (_rename_keys(spec, new) for spec, new in zip(condition.sides, names, strict=True))
    return replace(
        condition,
        sides=(left, right),
        predicates=tuple(_rename_predicate(predicate, names) for predicate in condition.predicates),
        same=tuple(
            (names[0].get(mine, mine), names[1].get(theirs, theirs)) for mine, theirs in condition.same
        ),
        measured=tuple(_rename_measured(one, names) for one in condition.measured),
        ranked=None if condition.ranked is None else condition.ranked.rename(names),
    )


def _rename_keys(spec: SideSpec, names: Mapping[str, str]) -> SideSpec:
    def rename(key: Key) -> Key:
        return replace(key, column=names.get(key.column, key.column))

    return replace(
        spec,
        computed=tuple(names.get(column, column) for column in spec.computed),
        keys=tuple(rename(key) for key in spec.keys),
        time=None if spec.time is None else rename(spec.time),
    )


def _rename_predicate(predicate: PythonPredicate, names: Sequence[Mapping[str, str]]) -> PythonPredicate:
    left, right = (
        tuple((argument, new.get(block, block)) for argument, block in columns)
        for columns, new in zip(predicate.columns, names, strict=True)
    )
    return replace(predicate, columns=(left, right))


def narrow_results(plan: PhysicalPlan, read: Collection[str]) -> PhysicalPlan:
    """Return the plan whose results have only these block columns. What units store stays as it is.

    Each side keeps at least one column, so that its matches have a length.
    """
    left, right = (
        replace(spec, columns=tuple(name for name in spec.columns if name in read) or spec.columns[:1])
        for spec in plan.condition.sides
    )
    return replace(plan, condition=replace(plan.condition, sides=(left, right)))


def _rename_measured(measured: MeasuredPair, names: Sequence[Mapping[str, str]]) -> MeasuredPair:
    left, right = (new.get(column, column) for column, new in zip(measured.columns, names, strict=True))
    own, others = (
        column and new.get(column, column) for column, new in zip(measured.thresholds, names, strict=True)
    )
    return replace(measured, columns=(left, right), thresholds=(own, others))


def list_catalyst_residual(plan: PhysicalPlan) -> tuple[str, ...]:
    """List the conjuncts of the residual that only Catalyst can evaluate."""
    replaceable = dict(plan.unit_checks)
    return tuple(text for text in plan.residual if text not in replaceable)


def check_at_units(plan: PhysicalPlan) -> PhysicalPlan:
    """Return the plan whose units evaluate all conjuncts that they can, as exactly as Catalyst.

    Rows of an inner join are filtered by Catalyst behind the units, which costs nothing extra if they leave
    the units anyway. Units that write the results themselves must find them complete. The residual stays as
    it is, because it identifies the query.
    """
    checks = tuple(check for _, checks in plan.unit_checks for check in checks)
    condition = replace(plan.condition, predicates=(*checks, *plan.condition.predicates))
    return replace(plan, condition=condition)


@dataclass(frozen=True)
class Carrier:
    """The block type of a Spark type, and the SQL expressions that convert a column to it and back.

    Types are DDL texts, and columns are SQL texts.
    """

    block_type: Callable[[str], str]
    to_block: Callable[[str], str]
    from_block: Callable[[str, str], str]
    """(block column, Spark type) -> SQL."""


_AS_IS = Carrier(lambda type_: type_, lambda column: column, lambda block, _: block)
_TIMESTAMP = Carrier(
    lambda _: "bigint",
    Conversion.MICROS.write,
    lambda block, _: f"timestamp_micros({block})",
)
_YEAR_MONTH = Carrier(
    lambda _: "int",
    lambda column: f"CAST(CAST({column} AS INTERVAL MONTH) AS INT)",
    lambda block, type_: f"CAST(CAST({block} AS INTERVAL MONTH) AS {type_.upper()})",
)
_CALENDAR = Carrier(
    lambda _: "string",
    lambda column: f"CAST({column} AS STRING)",
    lambda block, _: f"CAST({block} AS INTERVAL)",
)
_VOID = Carrier(lambda _: "boolean", lambda column: f"CAST({column} AS BOOLEAN)", lambda block, _: "NULL")
_CARRIERS = {
    "timestamp": _TIMESTAMP,
    "interval year": _YEAR_MONTH,
    "interval month": _YEAR_MONTH,
    "interval year to month": _YEAR_MONTH,
    "interval": _CALENDAR,
    "void": _VOID,
}


def find_carrier(type_: str) -> Carrier:
    """Find the carrier of a type that blocks can hold.

    >>> find_carrier("timestamp").from_block("c0", "timestamp")
    'timestamp_micros(c0)'
    >>> find_carrier("array<int>").block_type("array<int>")
    'array<int>'
    """
    return _CARRIERS.get(type_, _AS_IS)
