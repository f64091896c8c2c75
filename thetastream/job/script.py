"""Checks the statements of a job against its sources and sinks, without Spark."""

import re
from collections.abc import Iterator, Mapping, Sequence

from thetastream.core.suggestions import suggest
from thetastream.core.windows import Rows
from thetastream.errors import QueryError, ThetastreamError
from thetastream.job.spans import find_span_problem
from thetastream.job.spec import SinkSpec, SourceSpec
from thetastream.predicate import make_error_at, tokenize
from thetastream.sql.endless import find_endless
from thetastream.sql.insert import find_mode_problems
from thetastream.sql.statement import Insert, Select, Statement, View, find_inputs, list_selects


def choose_sink(
    text: str,
    statement: Statement,
    sink: SinkSpec,
    sinks: Mapping[str, SinkSpec],
    problems: list[ThetastreamError],
) -> SinkSpec:
    """Return the sink that INSERT INTO names. Without INSERT INTO, return the only sink of the job."""
    if not isinstance(statement.head, Insert):
        if sinks:
            what = (
                f"[sinks] names {', '.join(sinks)}, but sql names none; write INSERT INTO {next(iter(sinks))}"
            )
            problems.append(QueryError("UNKNOWN_SINK", what))
        return sink
    name = statement.head.name.strip("`")
    found = {known.casefold(): spec for known, spec in sinks.items()}.get(name.casefold())
    if found is None:
        there = ", ".join(sinks) or "there are none"
        what = f"INSERT INTO must name a sink of the job ({there}), not {name!r}"
        problems.append(
            make_error_at(text, statement.head.start, f"{what}; write [sinks.{name}]", "UNKNOWN_SINK")
        )
    return found or sink


def find_script_problems(script: Sequence[Statement], sink: SinkSpec) -> Iterator[QueryError]:
    """Yield an error for EXPLAIN, for a view at the end, and for clauses that streams do not support."""
    last = script[-1]
    if last.is_explain:
        what = "the statement of a job must not begin with EXPLAIN"
        yield QueryError("EXPLAIN", f"{what}; leave it out, and call thetastream explain JOB.toml")
    if isinstance(last.head, View):
        what = "a job must end with a SELECT or an INSERT INTO, because a view alone has no result"
        yield make_error_at(last.select.text, last.head.start, what)
    for statement in script:
        for select in list_selects(statement.select):
            yield from find_endless(select.clauses)
    yield from find_mode_problems(last.select, sink.mode)


def find_unknown_sources(script: Sequence[Statement], names: Sequence[str]) -> Iterator[QueryError]:
    """Yield an error for each name in FROM that is not a source, a part of WITH or a view.

    A name with dots may be a table or a folder of files. Only Spark can check it.
    """
    known = {name.casefold() for name in names}
    for select, source in find_inputs(script):
        if source.plain_name not in known and len(tokenize(source.name).tokens) == 1:
            there = ", ".join(names) or "there are none"
            what = f"FROM must name a source ({there}), not {source.name!r}"
            what += suggest(source.plain_name, known)
            yield make_error_at(select.text, source.start, what, "UNKNOWN_SOURCE")


def find_missing_times(
    script: Sequence[Statement], sources: Mapping[str, SourceSpec]
) -> Iterator[QueryError]:
    """Yield an error for each source that has no event time and is joined with a time window."""
    for select, source in find_inputs(script):
        found = sources.get(source.plain_name)
        if found is not None and found.event_time is None and _is_timed(select):
            what = f"WITHIN needs the event time of source {found.name!r}"
            hint = f"write event_time in [sources.{found.name}]"
            yield make_error_at(select.text, source.start, f"{what}; {hint}", "NO_WATERMARK")


def find_window_problems(script: Sequence[Statement]) -> Iterator[QueryError]:
    """Yield an error for each WITHIN that is not a span of time."""
    for select in (each for statement in script for each in list_selects(statement.select)):
        spans = select.within.values() if isinstance(select.within, dict) else [select.within]
        for span in spans:
            problem = find_span_problem(span, "WITHIN") if isinstance(span, str) else None
            if problem is not None and isinstance(span, str):
                at = re.search(r"\W+".join(map(re.escape, span.split())), select.text)
                start = 0 if at is None else at.start()
                yield make_error_at(select.text, start, problem.message, problem.condition)


def _is_timed(select: Select) -> bool:
    """Whether a SELECT has a window of event time."""
    spans = select.within.values() if isinstance(select.within, dict) else [select.within]
    return any(span is not None and not isinstance(span, Rows) for span in spans)
