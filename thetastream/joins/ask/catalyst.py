"""Asks Spark's Catalyst for the types, names and errors of expressions, over empty DataFrames.

    type_of(text, aliases)  =  type of  SELECT text  over a DataFrame with one struct column per alias

Catalyst is the only resolver. It analyses the query and reads no row, and it works in the same way on a
classic session and on Spark Connect.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import cached_property, reduce

from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from thetastream.conditions import Phrase, write_candidates
from thetastream.conditions.refused import find_misspelt, make_varying_error
from thetastream.conditions.sphere import HINT
from thetastream.core.arguments import describe_given, hint_unit
from thetastream.core.errors import Mark, QueryError
from thetastream.core.spans import LONGEST_US, make_span_error, parse_duration, spell, to_micros
from thetastream.core.spark_types import is_day_time
from thetastream.joins.ask.carriers import carry, select_fields
from thetastream.joins.ask.literals import read_interval, read_number
from thetastream.joins.ask.refusals import find_mark, find_refusals, read_first_line, read_names, unlogged
from thetastream.lowering.physical import Carried
from thetastream.lowering.query import Constant, Stream
from thetastream.spark.analysed import find_hidden
from thetastream.spark.session.configure import is_case_sensitive
from thetastream.spark.session.zones import read_zone

_COLUMN = re.compile(r"(`?)(?P<alias>[A-Za-z_]\w*)\1\.(`?)(?P<name>[A-Za-z_]\w*)\3", re.ASCII)
"""A column of a stream by its alias, as in ``a.price``."""
_CALL = re.compile(r"\w\s*\(")
"""A call of a function."""
_FIXED_ZONE = re.compile(
    r"(UTC|GMT|Z|Etc/(UTC|GMT|UCT|Zulu|Universal)|UCT|Zulu|Universal)|((UTC|GMT|UT)?[+-][\d:]+)"
)


class Catalyst:
    """Answers questions about expressions over the streams of one query.

    Parameters
    ----------
    spark : SparkSession
    schemas : mapping of alias to StructType
        In the order of the streams.
    """

    def __init__(self, spark: SparkSession, schemas: Mapping[str, StructType]) -> None:
        self._spark = spark
        self._schemas = dict(schemas)
        self._frames: dict[tuple[str, ...], DataFrame] = {}
        self._types: dict[tuple[str, tuple[str, ...]], str | None] = {}
        self._constants: dict[str, Constant | None] = {}
        self._joins: dict[str, DataFrame] = {}
        self._errors: dict[str, AnalysisException | None] = {}
        self.is_case_sensitive = is_case_sensitive(spark)
        self.name_key: Callable[[str], str] = str if self.is_case_sensitive else str.casefold
        """Gives all spellings of one name the same value."""
        self.is_ansi = (spark.conf.get("spark.sql.ansi.enabled") or "").lower() == "true"

    @cached_property
    def zone_is_fixed(self) -> bool:
        """Whether the zone of the session has one offset from UTC at all times."""
        return _FIXED_ZONE.fullmatch(read_zone(self._spark)) is not None

    def type_of(self, text: str, aliases: Sequence[str]) -> str | None:
        """Find the Spark type of an expression over these streams; None if it does not resolve there."""
        asked = text, tuple(aliases)
        if asked not in self._types:
            self.learn_types([asked])
        return self._types.setdefault(asked, None)

    def learn_types(self, asked: Iterable[tuple[str, Sequence[str]]]) -> None:
        """Find the types of several expressions together, so that ``type_of`` knows them.

        Each pair is as in a call of ``type_of``. If one of the expressions that Catalyst is asked for does
        not resolve, ``type_of`` asks for each of them alone.
        """
        texts: dict[tuple[str, ...], list[str]] = {}
        for text, aliases in asked:
            named = tuple(aliases)
            known = self._types.get((text, named)) or self._find_column_type(text, named)
            if known is not None:
                self._types[text, named] = known
            elif text not in texts.setdefault(named, []):
                texts[named].append(text)
        for named, alike in texts.items():
            columns = [f"({text}\n) AS c{n}" for n, text in enumerate(alike)]
            with suppress(PySparkException), unlogged():  # Spark computes intervals already here.
                fields = self._frame(named).selectExpr(*columns).schema
                for text, field in zip(alike, fields, strict=True):
                    self._types[text, named] = field.dataType.simpleString()

    def _find_column_type(self, text: str, aliases: Sequence[str]) -> str | None:
        """Find the type of a column that is written as in the schemas; None if Catalyst must be asked."""
        column = _COLUMN.fullmatch(text)
        if column is None or column["alias"] not in aliases:
            return None
        found = [
            field.dataType.simpleString()
            for field in self._schemas[column["alias"]].fields
            if self.name_key(field.name) == self.name_key(column["name"])
        ]
        return found[0] if len(found) == 1 else None

    def constant(self, text: str) -> Constant | None:
        """Evaluate an expression without columns; None if it fails or Python cannot hold its value.

        Spark evaluates it by a job, which takes a second or two in a new session. Plain numbers and
        intervals need no job.
        """
        number = read_number(text)
        if number is not None:
            return number
        if text not in self._constants:
            try:
                with unlogged():
                    frame = self._spark.sql(f"SELECT ({text}\n) AS value")
                    type_ = frame.schema[0].dataType.simpleString()
                    # A setting of the session decides whether an interval is one of days and times.
                    value = read_interval(text) if is_day_time(type_) else None
                    self._constants[text] = Constant(type_, frame.collect()[0][0] if value is None else value)
            except (PySparkException, NotImplementedError, ValueError, OverflowError):
                self._constants[text] = None
        return self._constants[text]

    def carry(
        self, stream: Stream, names: Collection[str] | None, first: int
    ) -> tuple[tuple[Carried, ...], list[QueryError]]:
        """Assign columns of a stream to block columns, as ``Resolver`` describes it."""
        travelling = select_fields(self._schemas[stream.alias], names, stream.is_streaming)
        return carry(stream.alias, travelling, first)

    def problems(self, condition: Phrase, conjuncts: Sequence[Phrase]) -> list[QueryError]:
        """List the errors that Catalyst reports for a condition.

        Each faulty conjunct gives the errors that Catalyst finds in it. If each conjunct alone is correct,
        the list has the error of the whole condition.
        """
        found = self._ask(condition.text)
        if found is None:
            # The text shows clocks and subqueries, but not those in a SQL function of the session.
            if not _CALL.search(condition.text) or find_hidden(self._join(condition.text)) is None:
                return []
            hidden = [(one.text, find_hidden(self._join(one.text))) for one in conjuncts]
            return [make_varying_error(text, name) for text, name in hidden if name is not None]
        if isinstance(found, ParseException):
            # The conjuncts around a mistake in the grammar are not those that the user meant.
            misspelt = find_misspelt(condition)
            return [self._translate(condition.text, found) if misspelt is None else misspelt]
        each = [
            self._translate(conjunct.text, error, mark)
            for conjunct in (conjuncts if len(conjuncts) > 1 else [condition])
            for error, mark in find_refusals(lambda texts: self._ask(texts[0]), [conjunct.text])
        ]
        return each or [self._translate(condition.text, found)]

    def is_resolved(self, condition: Phrase) -> bool:
        """Whether Catalyst accepts the condition as it is."""
        return self._ask(condition.text) is None

    def write_column(self, column: Column) -> str:
        """Write a Column over the streams as SQL of equal meaning.

        Spark prints a Column, and this text is read in all possible ways. Spark's ``sameSemantics`` decides
        which of them is the Column, so a wrong reading is never used.

        Raises
        ------
        QueryError
            COLUMN_CONDITION if no reading has the meaning of the Column.
        """
        printed = str(column).removeprefix("Column<'").removesuffix("'>")
        frame = self._flat_frame()
        try:
            texts = list(write_candidates(printed))
        except QueryError:
            texts = []
        with unlogged():
            try:
                meant = frame.select(column.alias("value"))
                _ = meant.schema
            except AnalysisException:
                # Catalyst explains what is wrong with the text, if it is wrong in the same way.
                if texts and not self._resolves(frame, texts[0]):
                    return texts[0]
                texts = []
            for text in texts:
                if self._resolves(frame, text) and meant.sameSemantics(_select(frame, text)):
                    return text
        raise QueryError(
            "COLUMN_CONDITION",
            f"this Column cannot be written as SQL: {printed:.100}; name columns by alias, as in "
            "th.col('a.price'), and write the conjunct as SQL text if it has a literal or a function that "
            "SQL writes in another way",
        )

    def _resolves(self, frame: DataFrame, text: str) -> bool:
        try:
            _ = _select(frame, text).schema
        except PySparkException:
            return False
        return True

    def _flat_frame(self) -> DataFrame:
        """Return an empty frame with a struct per alias, and with each column whose name is unique."""
        name_key = self.name_key
        names = [name_key(name) for schema in self._schemas.values() for name in schema.names]
        aliases = {name_key(alias) for alias in self._schemas}
        unique = [
            field
            for schema in self._schemas.values()
            for field in schema.fields
            if names.count(name_key(field.name)) == 1 and name_key(field.name) not in aliases
        ]
        structs = [StructField(alias, schema) for alias, schema in self._schemas.items()]
        return self._spark.createDataFrame([], StructType([*structs, *unique]))

    def duration(self, duration: object, what: str) -> int:
        """Convert an interval such as ``"10 minutes"`` or ``"5m"``, or a timedelta, to microseconds.

        Raises
        ------
        QueryError
            INVALID_DURATION if it is no interval, counts in months, is negative, or is longer than 10,000
            years.
        """
        if isinstance(duration, timedelta):
            value: timedelta | None = duration
        elif isinstance(duration, str):
            value = parse_duration(duration)
            value = self._interval(duration, what) if value is None else value
        else:
            raise QueryError(
                "INVALID_DURATION",
                f'{what} must be an interval such as "10 minutes", not {describe_given(duration)}'
                f"{hint_unit(duration)}",
            )
        if value is None or value < timedelta(0):
            raise QueryError("INVALID_DURATION", f"{what} must not be negative, it is {duration!r}")
        if to_micros(value) > LONGEST_US:
            raise QueryError(
                "INVALID_DURATION",
                f"{what} must be at most 10,000 years ({spell(LONGEST_US)}), it is {duration!r}; "
                "within=None keeps the full history",
            )
        return to_micros(value)

    def _interval(self, text: str, what: str) -> timedelta | None:
        escaped = text.replace("\\", "\\\\").replace("'", "\\'")
        constant = self.constant(f"INTERVAL '{escaped}'")
        if constant is not None and is_day_time(constant.type):
            value = constant.value
            return value if isinstance(value, timedelta) else None
        type_ = self.type_of(f"INTERVAL '{escaped}'", tuple(self._schemas))
        if type_ is not None:
            raise QueryError(
                "INVALID_DURATION",
                f"{what} ({text!r}) counts in months, which have no fixed length; write days or hours",
            )
        has_condition = re.search(r"\b(ON|WHERE|AND)\b", text, re.IGNORECASE)
        raise make_span_error(what, text, "; the condition stands before WITHIN" if has_condition else "")

    @cached_property
    def _no_rows(self) -> DataFrame:
        """An empty DataFrame. No alias is ``1``, the name of its column."""
        # spark.sql would be a request of its own on Spark Connect.
        return self._spark.range(0, 0, 1, 1).withColumnRenamed("id", "1")

    def _frame(self, aliases: tuple[str, ...]) -> DataFrame:
        """Return an empty DataFrame with a struct column for each of these streams."""
        if aliases not in self._frames:
            schema = StructType([StructField(alias, self._schemas[alias]) for alias in aliases])
            # This adds the columns, in a tenth of the calls to the JVM of createDataFrame.
            self._frames[aliases] = self._no_rows.to(schema)
        return self._frames[aliases]

    def _ask(self, text: str) -> AnalysisException | None:
        """Ask Catalyst for its error in a condition."""
        if text not in self._errors:
            self._errors[text] = None
            try:
                with unlogged():
                    _ = self._join(text).schema
            except AnalysisException as error:
                self._errors[text] = error
        return self._errors[text]

    def _join(self, text: str) -> DataFrame:
        """Join the empty streams on a condition."""
        if text not in self._joins:
            *others, last = [self._frame((alias,)) for alias in self._schemas]
            # In parentheses, an alias behind the condition or a second condition is an error.
            condition = F.expr(f"({text}\n)")
            self._joins[text] = reduce(DataFrame.crossJoin, others).join(last, on=condition)
        return self._joins[text]

    def _translate(self, text: str, error: AnalysisException, mark: Mark | None = None) -> QueryError:
        """Translate Spark's error into a QueryError that names the rule, the value and a hint."""
        if mark is None:
            mark = find_mark(error, text, before=1)
        condition = (error.getCondition() or "").split(".")[0]
        values = error.getMessageParameters() or {}
        aliases = ", ".join(self._schemas)
        if condition == "UNRESOLVED_COLUMN":
            parts = read_names(values.get("objectName", ""))
            if len(parts) > 1:
                return QueryError(
                    "UNKNOWN_ALIAS",
                    f"alias {parts[0]!r} is not one of the streams {aliases}, in {text!r}",
                    mark,
                )
            name = parts[0] if parts else values.get("objectName", "?")
            return QueryError(
                "UNKNOWN_COLUMN",
                f"column {name!r} is in none of the streams, in {text!r}; {self._columns()}",
                mark,
            )
        if condition == "FIELD_NOT_FOUND":
            return QueryError(
                "UNKNOWN_COLUMN",
                f"column {values.get('fieldName', '?').strip('`')!r} does not exist, in {text!r}; "
                f"there are {values.get('fields', '').replace('`', '')}",
                mark,
            )
        rule = _RULES.get(condition)
        if rule is None and condition.startswith(("PARSE", "INVALID_TYPED_LITERAL", "UNCLOSED")):
            rule = _RULES["PARSE_SYNTAX_ERROR"]
        name, sentence = rule or ("INVALID_CONDITION", "Spark refuses the condition")
        if name == "SYNTAX" and (dangling := _DANGLING.search(text)):
            return QueryError(
                name, f"{dangling[0].strip()} must stand between two conditions, in {text!r}", mark
            )
        hint = " Write AND" if name == "SYNTAX" and "&&" in text else ""
        if name == "UNKNOWN_FUNCTION" and _DISTANCES.search(values.get("routineName", "")):
            hint = f"; {HINT}"
        if name == "TYPE_MISMATCH" and values.get("requiredType") == '"ARRAY<FLOAT>"':
            vector = values.get("inputSql", "").strip('"')
            what = f"vectors must be ARRAY<FLOAT>, in {text!r}: {read_first_line(error).rstrip('.')}"
            return QueryError("VECTOR_TYPE", f"{what}; write CAST({vector} AS ARRAY<FLOAT>)", mark)
        return QueryError(name, f"{sentence}, in {text!r}: {read_first_line(error)}{hint}", mark)

    def _columns(self) -> str:
        return "; ".join(f"{alias} has {', '.join(schema.names)}" for alias, schema in self._schemas.items())


_RULES = {
    "PARSE_SYNTAX_ERROR": ("SYNTAX", "the condition must be one Spark SQL expression"),
    "JOIN_CONDITION_IS_NOT_BOOLEAN_TYPE": ("NOT_BOOLEAN", "a condition must be boolean"),
    "INVALID_NON_DETERMINISTIC_EXPRESSIONS": (
        "NON_DETERMINISTIC",
        "a condition must be deterministic, or a retried epoch would give another result",
    ),
    "UNSUPPORTED_EXPR_FOR_OPERATOR": (
        "UNSUPPORTED_EXPRESSION",
        "aggregates and window functions cannot stand in a join condition; compute them apart",
    ),
    "UNSUPPORTED_GENERATOR": (
        "UNSUPPORTED_EXPRESSION",
        "generators such as explode cannot stand in a join condition; explode before the join",
    ),
    "INVALID_USAGE_OF_STAR_OR_REGEX": ("UNSUPPORTED_EXPRESSION", "a star cannot stand in a join condition"),
    "DATATYPE_MISMATCH": ("TYPE_MISMATCH", "the types do not fit"),
    "UNRESOLVED_ROUTINE": ("UNKNOWN_FUNCTION", "the function is not known to the session"),
    "UNBOUND_SQL_PARAMETER": ("UNBOUND_PARAMETER", "a condition has no parameters; write the value"),
    "AMBIGUOUS_REFERENCE_TO_FIELDS": ("AMBIGUOUS_COLUMN", "the stream has the column twice; rename one"),
    "AMBIGUOUS_REFERENCE": ("AMBIGUOUS_COLUMN", "the name stands for more than one column"),
    "UNSUPPORTED_SUBQUERY_EXPRESSION_CATEGORY": ("SUBQUERY", "a subquery cannot stand in a join condition"),
}


_DANGLING = re.compile(r"\A\s*(AND|OR)\b|\b(AND|OR|NOT)\s*\Z", re.IGNORECASE)
"""A connective without a condition before or behind it. Spark parses the text in parentheses."""
_DISTANCES = re.compile(r"(?i)haversine|st_d|distance")


def _select(frame: DataFrame, text: str) -> DataFrame:
    return frame.select(F.expr(f"({text}\n)").alias("value"))


def escape_braces(text: str) -> str:
    """Escape the braces of a text for ``spark.sql(..., name=frame)``, which replaces names in braces.

    The newline at the end closes a comment with which the user's text may end.
    """
    return text.replace("{", "{{").replace("}", "}}") + "\n"
