"""The key columns of one side: payload columns, payload columns plus a constant, and computed columns.

A unit computes a key that is a column plus a constant itself, so it is not sent. NumPy adds as Spark does:
doubles by IEEE 754, integers exactly. Integer columns have at most 32 bits and constants at most 60, so 64
bits hold every sum and every difference of sums. If a sum leaves its type, Spark raises an error in ANSI
mode. Here, the exact sum is compared instead, because one outlier must not stop a stream for good. Spark's
own join does not compute sums that it does not need either.
"""

from dataclasses import dataclass, field, replace

from thetastream.conditions import Phrase
from thetastream.conditions.names import find_references
from thetastream.conditions.phrases import canonicalize, find_last_additive
from thetastream.core.condition import Domain, Key
from thetastream.core.spark_types import is_floating, is_integral
from thetastream.lowering.domains import find_family, is_same_key, quote, write_cast, write_key
from thetastream.lowering.event_time import find_column
from thetastream.lowering.physical import Filter
from thetastream.lowering.query import Resolver, Stream

_NARROW = {"tinyint", "smallint", "int"}
_MOST = 1 << 60


@dataclass(frozen=True)
class OffsetColumn:
    """The key ``column + by``."""

    column: str
    by: int | float


@dataclass
class SideKeys:
    """Key columns of one side. Conjuncts add them, and a key that is added twice exists once."""

    stream: Stream
    resolver: Resolver
    prefix: str = "k"
    """Prefix of the names of computed columns."""
    keys: list[Key] = field(default_factory=list)
    computed: dict[str, str] = field(default_factory=dict)
    """The block column of each computed key, by its SQL."""
    not_null: dict[Filter, None] = field(default_factory=dict)
    """Filters that exclude tuples with NULL keys, as an ordered set."""

    def add(self, phrase: Phrase, type_: str, common: str, domain: Domain, is_nullable: bool = False) -> int:
        """Add the key that holds ``phrase`` in the type ``common``, and return its position.

        Tuples in which it is NULL are excluded, unless the key is nullable: then NULL is the highest key.
        """
        column = self.find_payload_column(phrase)
        if column is not None and is_same_key(type_, common):
            if not is_nullable:
                self._require(phrase.text)
            return self._find_position(column, domain)
        offset_column = self._read_offset(phrase, type_, common)
        if offset_column is not None:
            if not is_nullable:
                self._require(f"{quote(self.stream.alias)}.{quote(offset_column.column)}")
            return self._find_position(
                self._find_block_column(offset_column.column), domain, offset_column.by
            )
        if not is_nullable:
            self._require(write_cast(phrase.text, type_, common))
        return self._find_position(self._compute(write_key(phrase.text, type_, common)), domain)

    def add_with_delta(self, phrase: Phrase, type_: str, common: str, domain: Domain) -> tuple[int, int]:
        """Add a key, and return its position and the integer to add to the key to get ``phrase``.

        So both ends of a band share one key.
        """
        offset_column = self._read_offset(phrase, type_, common) if domain is Domain.INT else None
        if offset_column is None:
            return self.add(phrase, type_, common, domain), 0
        self._require(f"{quote(self.stream.alias)}.{quote(offset_column.column)}")
        return self._find_position(self._find_block_column(offset_column.column), domain), int(
            offset_column.by
        )

    def add_sql(self, text: str, value: str | None, domain: Domain) -> int:
        """Add the key that ``text`` computes, and return its position.

        Only tuples in which ``value`` is not NULL have this key. If it is None, all tuples have it.
        """
        if value is not None:
            self._require(value)
        return self._find_position(self._compute(text), domain)

    def add_values(self, phrase: Phrase, is_nullable: bool = False) -> None:
        """Send the values of ``phrase``, which are no key.

        Tuples in which it is NULL are excluded, unless it is nullable.
        """
        if not is_nullable:
            self._require(phrase.text)
        if self.find_payload_column(phrase) is None:
            self._compute(phrase.text)

    def find_values(self, phrase: Phrase) -> str:
        """Return the block column of values that ``add_values`` has added."""
        return self.find_payload_column(phrase) or self.computed[phrase.text]

    def sort_computed(self) -> None:
        """Sort and rename the computed columns by their canonical texts.

        So the columns of blocks do not depend on the order in which conjuncts are written. Call it after the
        last key has been added.
        """
        texts = sorted(self.computed, key=canonicalize)
        names = {self.computed[text]: f"{self.prefix}{n}" for n, text in enumerate(texts)}
        self.computed = {text: names[self.computed[text]] for text in texts}
        self.keys = [replace(key, column=names.get(key.column, key.column)) for key in self.keys]

    def find_payload_column(self, phrase: Phrase) -> str | None:
        """Return the block column of ``phrase`` if it is a payload column, else None."""
        column = find_column(phrase, self.stream, self.resolver.is_case_sensitive)
        return None if column is None else self._find_block_column(column)

    def _require(self, value: str) -> None:
        self.not_null[Filter.require(value)] = None

    def _find_block_column(self, column: str) -> str:
        return next(c.block_column for c in self.stream.carried if c.field == column)

    def _compute(self, text: str) -> str:
        return self.computed.setdefault(text, f"{self.prefix}{len(self.computed)}")

    def _read_offset(self, phrase: Phrase, type_: str, common: str) -> OffsetColumn | None:
        # The sum must be rounded as Spark rounds it, in the type of the comparison.
        if is_integral(type_) != is_integral(common) or not is_same_key(type_, common):
            return None
        return read_offset_column(phrase, type_, self.stream, self.resolver)

    def _find_position(self, column: str, domain: Domain, offset: int | float = 0) -> int:
        key = Key(column, domain, offset)
        if key not in self.keys:
            self.keys.append(key)
        return self.keys.index(key)


def read_offset_column(phrase: Phrase, type_: str, stream: Stream, resolver: Resolver) -> OffsetColumn | None:
    """Read ``phrase`` as a column of ``stream`` plus a number. Return None if it has another form.

    ``type_`` is the Spark type of ``phrase``.
    """
    phrase = phrase.bare()
    sign = find_last_additive(phrase)
    if sign is None:
        return None
    operands = phrase.slice(0, sign), phrase.slice(sign + 1)
    is_minus = phrase.tokens[sign].kind == "DASH"
    if not is_minus and find_references(operands[1], [stream.alias]):
        operands = operands[::-1]
    column = find_column(operands[0], stream, resolver.is_case_sensitive)
    if column is None or find_references(operands[1], [stream.alias]):
        return None
    constant = resolver.constant(operands[1].text)
    if constant is None or constant.value is None or find_family(constant.type) != "numeric":
        return None
    column_type = stream.type_of(column)
    if type_ == "double" and (is_integral(column_type) or is_floating(column_type)):
        by: int | float = float(constant.value)
    elif resolver.is_ansi and is_integral(type_) and is_integral(constant.type) and column_type in _NARROW:
        by = int(constant.value)
        if abs(by) > _MOST:
            return None
    else:
        return None
    return OffsetColumn(column, -by if is_minus else by)
