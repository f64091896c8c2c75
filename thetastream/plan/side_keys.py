"""The key columns of one side: payload columns, shifted ones, and those that Catalyst computes."""

from dataclasses import dataclass, field

from thetastream.condition import Domain, Key
from thetastream.plan.domains import cast, is_integral, is_same_key, key_sql, quoted
from thetastream.plan.event_time import column_of
from thetastream.plan.query import Resolver, Stream
from thetastream.plan.shifted import Shifted, shifted_column
from thetastream.predicate import Phrase


@dataclass
class SideKeys:
    """Key columns of one side, gathered as conjuncts ask for them; asked twice, made once."""

    stream: Stream
    resolver: Resolver
    prefix: str = "k"
    """Of the names of computed columns."""
    keys: list[Key] = field(default_factory=list)
    computed: dict[str, str] = field(default_factory=dict)
    """SQL -> block column."""
    not_null: dict[str, None] = field(default_factory=dict)

    def add(self, phrase: Phrase, type_: str, common: str, domain: Domain) -> int:
        """Position of the key that holds ``phrase`` in type ``common``."""
        column = self.payload_column(phrase)
        if column is not None and is_same_key(type_, common):
            self._require(phrase.text)
            return self._position(column, domain)
        shifted = self._shifted(phrase, type_, common)
        if shifted is not None:
            return self._position(self._payload(shifted.column), domain, shifted.by)
        self._require(cast(phrase.text, type_, common))
        return self._position(self._compute(key_sql(phrase.text, type_, common)), domain)

    def add_with_delta(self, phrase: Phrase, type_: str, common: str, domain: Domain) -> tuple[int, int]:
        """Position of a key, and the integer that makes it ``phrase``: both ends of a band share one key."""
        shifted = self._shifted(phrase, type_, common) if domain is Domain.INT else None
        if shifted is None:
            return self.add(phrase, type_, common, domain), 0
        return self._position(self._payload(shifted.column), domain), int(shifted.by)

    def add_sql(self, text: str, value: str, domain: Domain) -> int:
        """Position of the key computed by ``text``, present where ``value`` is not NULL."""
        self._require(value)
        return self._position(self._compute(text), domain)

    def payload_column(self, phrase: Phrase) -> str | None:
        """The block column of the payload column that ``phrase`` is, if it is one."""
        column = column_of(phrase, self.stream, self.resolver.is_case_sensitive)
        return None if column is None else self._payload(column)

    def _require(self, value: str) -> None:
        self.not_null[f"({value}) IS NOT NULL"] = None

    def _payload(self, column: str) -> str:
        return next(c.block_column for c in self.stream.carried if c.field == column)

    def _compute(self, text: str) -> str:
        return self.computed.setdefault(text, f"{self.prefix}{len(self.computed)}")

    def _shifted(self, phrase: Phrase, type_: str, common: str) -> Shifted | None:
        # The sum must be rounded as Spark rounds it: in the type that is compared.
        if is_integral(type_) != is_integral(common) or not is_same_key(type_, common):
            return None
        shifted = shifted_column(phrase, type_, self.stream, self.resolver)
        if shifted is not None:
            self._require(f"{quoted(self.stream.alias)}.{quoted(shifted.column)}")
        return shifted

    def _position(self, column: str, domain: Domain, offset: int | float = 0) -> int:
        key = Key(column, domain, offset)
        if key not in self.keys:
            self.keys.append(key)
        return self.keys.index(key)
