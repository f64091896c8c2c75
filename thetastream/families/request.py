"""The request that a family of joins takes: what the user asked for, read and checked, without Spark."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from thetastream.conditions import Phrase, Predicate, parse
from thetastream.core.errors import QueryError, ThetastreamError, raise_problems
from thetastream.core.how import How
from thetastream.core.spans import Within
from thetastream.families.option_values import MOST_UNITS
from thetastream.families.options import GivenOptions, Options
from thetastream.lowering.query import Query, Resolver, Stream
from thetastream.lowering.statistics import Statistics, choose_n_units
from thetastream.models.base import Model
from thetastream.runtime.flow import RunContext


class SessionChecks(Protocol):
    """The questions that planning asks about the Spark session."""

    def find_problems(self, n_units: int) -> Sequence[ThetastreamError]:
        """Find the settings of the session that do not allow a streaming join by ``n_units`` units."""

    def choose_mailbox_folder(self, asked: str | Path | None) -> tuple[str, list[ThetastreamError]]:
        """Choose the folder for mailboxes. Returns an error if there is none that all units reach."""

    def warn_of_state(self, nbytes: float) -> None:
        """Warn if the machine of a local session has too little memory for this state."""


@dataclass(frozen=True, kw_only=True)
class JoinRequest:
    """A join as the user asked for it. All of it is read, and what is wrong with it is in ``problems``."""

    streams: tuple[Stream, ...]
    """The inputs with all their columns, so that errors can name them."""
    on: tuple[str, ...]
    """The SQL texts of the condition as the user wrote them."""
    conjuncts: tuple[Phrase, ...]
    predicates: tuple[Predicate, ...]
    within: Within
    """The windows as the user gave them."""
    within_us: tuple[int, ...] | None
    """The time window of each stream. It is None if there are no windows or the windows count tuples."""
    how: How
    model: Model | None
    """The model, fitted to the streams. It is None if the planner chooses one."""
    has_open_size: bool
    """Whether the user named the model and left its number of units open."""
    given: GivenOptions
    statistics: Statistics | None
    archive_period_us: int | None
    has_result_time: bool
    """Whether the user gets the result time of each row."""
    run: RunContext
    """The settings with which units run, without the folder of mailboxes and ``max_units``."""
    partitions: int
    """Number of shuffle partitions of the session."""
    resolver: Resolver
    session: SessionChecks
    problems: tuple[ThetastreamError, ...] = ()
    bounds_watermark: bool = False
    """Whether the last of several joins must know how far the watermark rises behind those before it."""
    keeps_spark_join: bool = False
    """Whether the user asks for Spark's own join of streams with tables, or of two batch DataFrames."""
    lookup_partitions: int | None = None
    """The number of partitions in which the user wants tuples to be looked up in tables. It is 1 if each task
    has the whole table, and None if it follows from the size of the table."""
    shown: Mapping[str, Collection[str]] = field(default_factory=dict)
    """The columns that results show of each alias. Of an alias without an entry, they show all."""

    @property
    def options(self) -> Options:
        """The values of the options that the user or the session gave."""
        return self.given.values

    @property
    def has_tables(self) -> bool:
        """Whether some inputs are streams and some are tables, which are batch DataFrames."""
        return len({stream.is_streaming for stream in self.streams}) > 1

    @property
    def is_streaming(self) -> bool:
        """Whether the inputs are streams. If not, they are batch DataFrames."""
        return self.streams[0].is_streaming

    def query(self, counts: tuple[int, ...] | None = None) -> Query:
        """Return the query. Its streams have only the columns that are sent to the units.

        Raises
        ------
        QueryError
            If the request has problems. It lists all of them.
        """
        raise_problems(self.problems)
        streams = tuple(stream.narrowed for stream in self.streams)
        return Query(
            streams=streams,
            on=self.on,
            conjuncts=self.conjuncts,
            predicates=self.predicates,
            within_us=self.within_us,
            counts=counts,
            has_result_time=self.has_result_time,
            how=self.how,
        )

    def with_problems(self, found: Iterable[ThetastreamError]) -> "JoinRequest":
        """Return the request with these problems too, each of them once."""
        problems = {str(problem): problem for problem in (*self.problems, *found)}
        return replace(self, problems=tuple(problems.values()))

    def without(self, refused: Mapping[str, "Refusal"]) -> "JoinRequest":
        """Return the request without the options that a kind of join does not honour.

        It has an error for each of them that the user gave. Defaults of the session are left out.
        """
        found = [
            refusal.make_error(self.options.get(name))
            for name, refusal in refused.items()
            if name in self.given.of_user and self.options.get(name)
        ]
        return replace(self.with_problems(found), given=self.given.without(refused))

    def without_tables(self, parts: Sequence[Phrase | Predicate]) -> "JoinRequest":
        """Return the request for the join of the streams alone, with the parts of the condition over them.

        Its rows have no result time. It is added behind the tables.
        """
        streams: list[Stream] = []
        for stream in self.streams:
            if stream.is_streaming:
                names = {carried.field.casefold() for carried in stream.carried}
                first = sum(len(known.carried) for known in streams)
                streams.append(replace(stream, carried=self.resolver.carry(stream, names, first)[0]))
        conjuncts = [part for part in parts if isinstance(part, Phrase)]
        predicates = [part for part in parts if isinstance(part, Predicate)]
        conjuncts = conjuncts if parts else [parse("true")]
        return replace(
            self,
            streams=tuple(streams),
            on=tuple(phrase.text for phrase in conjuncts),
            conjuncts=tuple(conjuncts),
            predicates=tuple(predicates),
            has_result_time=False,
            keeps_spark_join=False,  # it is about the tables
            problems=(),
        )

    def prepare_run(self, has_messages: bool) -> "JoinRequest":
        """Check the session of a streaming join, and return the request with all settings of its units.

        ``has_messages`` says whether units send messages, which need a folder.
        """
        if not self.is_streaming:
            return self
        model, max_units = self.model, self.options.get("max_units")
        n_units = choose_n_units(self.partitions) if model is None else model.n_units
        problems = list(self.session.find_problems(n_units))
        if max_units is not None and model is not None and max_units < model.n_units:
            bounds = f"from {model.n_units} to {MOST_UNITS}, because {model!r} has {model.n_units}"
            problems.append(QueryError("MAX_UNITS", f"max_units must be {bounds} unit(s), not {max_units!r}"))
        run = replace(self.run, max_units=max_units)
        mailbox, found = self.choose_mailbox()
        if has_messages or run.shed is not None or max_units is not None:
            problems += found
        run = replace(run, mailbox="" if found else mailbox)
        return replace(self.with_problems(problems), run=run)

    def choose_mailbox(self) -> tuple[str, list[ThetastreamError]]:
        """Choose the folder for mailboxes. Returns an error if there is none that all units reach."""
        return self.session.choose_mailbox_folder(self.options.get("mailbox"))


@dataclass(frozen=True)
class Refusal:
    """Why a kind of join does not honour an option."""

    condition: str
    """The name of the error."""
    why: str
    """What is not possible, and what to do instead. ``VALUE`` in it stands for the value of the user."""

    def make_error(self, value: object) -> QueryError:
        """Make the error for a value that the user gave."""
        return QueryError(self.condition, self.why.replace("VALUE", repr(value)))


def find_how_problems(how: How, what: str, hint: str) -> list[QueryError]:
    """Return an error if the join is not an inner join, because ``what`` has pairs only."""
    if how.is_inner:
        return []
    return [QueryError("HOW", f"{what} has inner joins only, not how={how.name!r}; {hint}")]


RESULTS_OF_MORE = {
    "order": Refusal(
        "ORDER", "results of three or more streams have no single order of arrival; leave order out"
    ),
    "punctuations": Refusal(
        "ORDER",
        "punctuations need an order, and results of three or more streams have none; leave them out",
    ),
}
"""Options of results that only a join of two streams by units honours."""


def find_answers_problems(how: How) -> list[QueryError]:
    """Return an error if a join that has pairs only is asked for answers for each tuple."""
    hint = "join two streams at a time, in several joins"
    return find_how_problems(how, "a join of more than two streams, or hop by hop,", hint)
