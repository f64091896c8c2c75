"""Columns of blocks that follow from columns of a stream without Spark.

``find_plain_columns`` finds them in the plan of a stream, whose texts are for Spark: names of columns,
microseconds of an instant, hashes of a text, filters that exclude NULL, and those of ``plain_filters``. If
there is any other text, Spark must compute it. Only ``Conversion`` declares the texts of columns.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum

import pyarrow as pa

from thetastream.conditions.clauses import read_named_item
from thetastream.lowering.physical import SidePlan
from thetastream.lowering.plain_filters import PlainFilter, read_plain_filters


class Conversion(Enum):
    """How a block column follows from a column of a stream, as the SQL that Spark would evaluate."""

    SAME = "{}"
    MICROS = "unix_micros({})"
    """A number of microseconds since 1970."""
    HASH = "hash({})"
    """Spark's hash of a text or of bytes."""

    def write(self, text: str) -> str:
        """Write the SQL over an expression.

        >>> Conversion.MICROS.write("a.ts")
        'unix_micros(a.ts)'
        """
        return self.value.format(text)

    def read(self, text: str) -> str | None:
        """Read the expression in a text that ``write`` may have written; None if it has not.

        >>> Conversion.MICROS.read("unix_micros(a.ts)"), Conversion.HASH.read("a.x")
        ('a.ts', None)
        """
        before, after = self.value.split("{}")
        is_written = text.startswith(before) and text.endswith(after)
        return text[len(before) : len(text) - len(after)] if is_written else None


@dataclass(frozen=True)
class PlainColumn:
    """A block column, and the column of the stream from which it follows."""

    name: str
    field: str
    conversion: Conversion


@dataclass(frozen=True)
class PlainColumns:
    """The block columns of a stream, the columns that must not be NULL, and its filters. Picklable."""

    columns: tuple[PlainColumn, ...]
    required: tuple[str, ...]
    filters: tuple[PlainFilter, ...] = ()

    @property
    def fields(self) -> tuple[str, ...]:
        """The columns of the stream that are read."""
        read = (*(one.field for one in self.columns), *self.required, *(one.field for one in self.filters))
        return tuple(dict.fromkeys(read))


class NotPlain(Exception):
    """The rows of files must go through Spark. The text gives the reason."""


def find_plain_columns(plan: SidePlan, types: Mapping[str, pa.DataType]) -> PlainColumns:
    """Find the block columns of a stream in its plan.

    ``types`` has the type of each column of the stream.

    Raises
    ------
    NotPlain
        If Spark must compute one of them, or evaluate a filter.
    """
    if plan.has_deletes:
        raise NotPlain("its rows change")
    required: list[str] = []
    filters: list[PlainFilter] = []
    for one in plan.filters:
        name = None if one.required is None else _read_name(one.required, plan.alias, types)
        if name is not None:
            required.append(name)
            continue
        found_filters = read_plain_filters(one.text, lambda text: _read_name(text, plan.alias, types), types)
        if found_filters is None:
            raise NotPlain(f"Spark evaluates {one.text}")
        filters += found_filters
    columns: list[PlainColumn] = []
    for block, text in (*((one.block_column, one.to_block) for one in plan.carried), *plan.computed):
        found = _read_column(block, text, plan.alias, types)
        # Spark's hash of NULL is a number.
        if found is None or (found.conversion is Conversion.HASH and found.field not in required):
            raise NotPlain(f"Spark computes {text}")
        columns.append(found)
    if not columns:
        raise NotPlain("the join reads none of its columns")
    return PlainColumns(tuple(columns), tuple(required), tuple(filters))


def _read_column(block: str, text: str, alias: str, types: Mapping[str, pa.DataType]) -> PlainColumn | None:
    for conversion in (Conversion.MICROS, Conversion.HASH, Conversion.SAME):
        inner = conversion.read(text)
        field = None if inner is None else _read_name(inner, alias, types)
        if field is None:
            continue
        type_ = types[field]
        is_known = {
            Conversion.MICROS: pa.types.is_timestamp(type_) and type_.tz is not None,
            Conversion.HASH: pa.types.is_string(type_) or pa.types.is_binary(type_),
            Conversion.SAME: True,
        }
        return PlainColumn(block, field, conversion) if is_known[conversion] else None
    return None


def _read_name(text: str, alias: str, types: Mapping[str, pa.DataType]) -> str | None:
    """Read the name of a column behind the alias of its stream; None if the text is more than this."""
    item = read_named_item(text)
    if item is None or item.head.casefold() != alias.casefold() or item.field is None or item.name:
        return None
    return find_name(item.field, types)


def find_name(name: str, names: Collection[str]) -> str | None:
    """Find the name of a column, whose letters may have another case; None if no name or several ones fit.

    >>> find_name("TS", ["id", "ts"]), find_name("t", ["id", "ts"])
    ('ts', None)
    """
    if name in names:
        return name
    same = [one for one in names if one.casefold() == name.casefold()]
    return same[0] if len(same) == 1 else None
