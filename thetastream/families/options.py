"""What a user may set of a join beside streams, condition, window, model and kind: the only declaration.

One TypedDict names the options of each door, and an ``Option`` at each of them says what it means and how its
value is read. Signatures, docstrings, defaults of the session, the OPTIONS clause of SQL, the table
``[options]`` of a job file and the table in docs/reference/settings.md follow from it.
"""

import functools
import inspect
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Final, TypedDict, TypeVar, cast, get_args, get_type_hints

from thetastream.core.errors import QueryError, ThetastreamError, suggest_or_list
from thetastream.core.shed import Shed
from thetastream.core.spans import Duration
from thetastream.engine.order import OrderOption
from thetastream.families import option_values
from thetastream.families.option_values import MOST_TASKS, MOST_UNITS, IndexName, Objective, OuterRows, Reader
from thetastream.index import REGISTRY as SHAPES
from thetastream.lowering.statistics import Statistics

SESSION_PREFIX = "spark.thetastream."
"""``spark.thetastream.<name>`` gives the session's default of an option."""
Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Option:
    """What an option means, and how its value is read."""

    summary: str
    """One or two sentences for docstrings and for the table of settings."""
    default: str
    """What holds if the option is left out."""
    read: Reader = option_values.keep
    is_text: bool = True
    """Whether a session, a statement or a job file can give the value as text or number."""
    is_path: bool = False
    """Whether the value is a path, which is relative to the folder of a job file."""
    parse: Callable[[str], object] = str
    """Turns a text of the session into a number or a boolean. It returns any other text as it is."""


class StreamOptions(TypedDict, total=False):
    """Options of every join."""

    index: Annotated[
        IndexName | None,
        Option(
            f"Force an index shape: {', '.join(f'`{name}`' for name in SHAPES)}.",
            "chosen from the condition",
            option_values.read_shape,
        ),
    ]
    archive_period: Annotated[
        Duration | None,
        Option(
            'The event time that one subindex spans, as in `"1 minute"`. A whole subindex expires at once.',
            "a tenth of the window",
        ),
    ]
    event_time: Annotated[
        str | Mapping[str, str] | None,
        Option(
            "The event-time column, or one for each alias, of batch DataFrames, which carry no watermark.",
            "the only timestamp column",
            option_values.read_event_time,
        ),
    ]
    mailbox: Annotated[
        str | Path | None,
        Option(
            "A folder, shared by driver and executors, for messages between units, for the loads of a "
            "shedder, for requests of `th.control`, and, as a setting of the session, for reports about "
            "idle streams.",
            "beside the checkpoints",
            option_values.read_folder("MAILBOX"),
            is_path=True,
        ),
    ]
    cache_folder: Annotated[
        str | Path | None,
        Option(
            "A folder on each host for mapped segments.",
            "Spark's local directory",
            option_values.read_local_folder,
            is_path=True,
        ),
    ]
    late: Annotated[
        str | Path | None,
        Option(
            "A folder in which late tuples are kept, as Parquet files, each tuple exactly once. Each join "
            "needs a folder of its own.",
            "late tuples are only counted",
            option_values.read_folder("LATE_FOLDER"),
            is_path=True,
        ),
    ]
    statistics: Annotated[
        Statistics | None,
        Option(
            "`th.Statistics`, from which costs are estimated, and from which the model is chosen if it is "
            "left out.",
            "assumed figures",
            option_values.read_instance(Statistics, "STATISTICS", "th.Statistics or th.statistics(query)"),
            is_text=False,
        ),
    ]


class ScalingOptions(StreamOptions, total=False):
    """Options of joins whose units may change while they run."""

    max_units: Annotated[
        int | None,
        Option(
            "The largest number of units at once, older generations included. With it, `th.control` changes "
            "the units while the join runs.",
            "the units do not change",
            option_values.read_number(MOST_UNITS, "MAX_UNITS"),
            parse=option_values.parse_integer,
        ),
    ]


class RunOptions(ScalingOptions, total=False):
    """Options of a join that may have many units, that may drop tuples, and that may have tables."""

    table_cache: Annotated[
        int | str | None,
        Option(
            'The most bytes of staged tables that a host copies into its cache, as in `"50 GB"`. If a table '
            "is larger, tuples are divided among tasks that need a part of it each.",
            "20 GB",
            option_values.read_bytes,
        ),
    ]
    objective: Annotated[
        Objective | None,
        Option(
            'What the number of nodes of `th.Ring(nodes="auto")` is chosen for: `"latency"`, `"throughput"`, '
            'or `"both"`, the least latency with room for twice the rate.',
            "both",
            option_values.read_objective,
        ),
    ]
    shed: Annotated[
        Shed | None,
        Option(
            "A `th.Shed`, which drops tuples of streams while the load is too high.",
            "nothing is dropped",
            option_values.read_instance(Shed, "SHED", 'th.Shed(threshold="1 GB", capacity="2 GB")'),
            is_text=False,
        ),
    ]
    outer: Annotated[
        OuterRows | None,
        Option(
            "When a row of a left, right or full join is a result without a partner: "
            '`"decided"`, when no partner can come any more, or `"early"`, at once. '
            "Its first partner then takes it back, and results are changes.",
            "decided",
            option_values.read_outer,
        ),
    ]


class GroupOptions(RunOptions, total=False):
    """Options of groups of results."""

    every: Annotated[
        str | timedelta | None,
        Option(
            "Groups over streams are updated only when the watermark has moved by this much, or when the "
            "streams pause. This works for aggregates that units fold, and not for windows of `result_time`.",
            "groups are updated in each epoch",
        ),
    ]


class OrderOptions(TypedDict, total=False):
    """Options of joins whose results may have an order."""

    order: Annotated[
        OrderOption,
        Option(
            'The order of results, with `th.Split` or `th.Ring`: `"outer"`, `"strict"`, `"inner n"`, or a '
            "punctuation interval in arrivals.",
            "results have no order",
            option_values.read_result_order,
        ),
    ]
    punctuations: Annotated[
        bool | None,
        Option(
            "Whether punctuations are rows of ordered results.",
            "they are not",
            option_values.read_bool,
            parse=option_values.parse_bool,
        ),
    ]


class StatementOptions(GroupOptions, OrderOptions, total=False):
    """Options of statements."""


class TimedOptions(TypedDict, total=False):
    """Options of joins whose results are rows with a time."""

    result_time: Annotated[
        bool | None,
        Option(
            "Whether results have the column `result_time`. A statement names the column where it wants it.",
            "they have it if every stream has an event time",
            option_values.read_bool,
            parse=option_values.parse_bool,
        ),
    ]


class TaskOptions(ScalingOptions, TimedOptions, total=False):
    """Options of several joins over one exchange."""

    max_tasks: Annotated[
        int | None,
        Option(
            "The largest number of join tasks at once. With it, tasks may be added and removed while the "
            "query runs, and all tuples are sent, also those that no task needs.",
            "the tasks stay as they are",
            option_values.read_number(MOST_TASKS, "MAX_TASKS"),
            parse=option_values.parse_integer,
        ),
    ]


class JoinOptions(RunOptions, TimedOptions, OrderOptions, total=False):
    """Options of a join."""

    columns: Annotated[
        Mapping[str, Sequence[str]] | None,
        Option(
            'The columns that results have of each alias, as in `{"a": ["id"]}`. Only these and those that '
            "the condition reads are sent to units and stored. Of other aliases, results have all columns.",
            "results have all columns",
            option_values.read_columns,
            is_text=False,
        ),
    ]


class Options(JoinOptions, StatementOptions, TaskOptions, total=False):
    """All options. A request holds those that its door takes and that the user or the session gave."""


def list_options(door: type) -> dict[str, Option]:
    """List the options of a door, in the order of their declaration.

    >>> list(list_options(TaskOptions))[-2:]
    ['result_time', 'max_tasks']
    """
    hints = get_type_hints(door, include_extras=True)
    return {
        name: next(part for part in get_args(hint) if isinstance(part, Option))
        for name, hint in hints.items()
    }


OF_ORDER: Final = tuple(list_options(OrderOptions))
"""The options of the order of results."""


class LinedSignature(inspect.Signature):
    """A signature whose text has one line for each parameter.

    ``help`` prints this text. Before Python 3.13, the text of ``inspect.Signature`` is one line.
    """

    def __str__(self) -> str:
        lines: list[str] = []
        for one in self.parameters.values():
            if one.kind is one.KEYWORD_ONLY and "*" not in lines:
                lines.append("*")
            lines.append(str(one))
        returned = str(inspect.Signature(return_annotation=self.return_annotation)).removeprefix("()")
        return "(\n    " + ",\n    ".join(lines) + f",\n){returned}"


def takes(door: type) -> Callable[[Function], Function]:
    """Give a public function the options of a door: their check, its signature and its docstring.

    The docstring has an entry ``**options``. The options take its place.
    """
    known = list_options(door)

    def give(function: Function) -> Function:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            refuse_unknown(kwargs.keys() - own, [*known, *own])
            # A Column of Spark Connect has every attribute, so its class is asked.
            if len(args) > 1 and hasattr(type(args[1]), "sparkSession"):
                what = f"{function.__name__} takes its DataFrames as one mapping of alias to DataFrame"
                raise QueryError("STREAMS", f'{what}, as in {{"a": df1, "b": df2}}, and not one by one')
            return function(*args, **kwargs)

        signature = inspect.signature(function)
        own = {name for name, one in signature.parameters.items() if one.kind is not one.VAR_KEYWORD}
        hints = get_type_hints(door)
        named = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=hints[name])
            for name in known
        ]
        parameters = [one for name, one in signature.parameters.items() if name in own]
        vars(call)["__signature__"] = LinedSignature(
            [*parameters, *named], return_annotation=signature.return_annotation
        )
        call.__doc__ = _write_docstring(function.__doc__ or "", known)
        return cast(Function, call)

    return give


def refuse_unknown(names: Collection[str], known: Collection[str]) -> None:
    """Raise UNKNOWN_SETTING if a name is no option."""
    for name in sorted(set(names) - set(known)):
        raise QueryError("UNKNOWN_SETTING", f"{name!r} is no option here{suggest_or_list(name, known)}")


def _write_docstring(text: str, options: Mapping[str, Option]) -> str:
    """Replace the entry ``**options`` of a docstring by one entry for each option."""
    lines = text.splitlines()
    start = next(n for n, line in enumerate(lines) if line.strip() == "**options")
    end = next(n for n, line in enumerate(lines[start:], start) if not line.strip())
    indent = " " * (len(lines[start]) - len(lines[start].lstrip()))
    written = []
    for name, option in options.items():
        summary = f"{option.summary} By default: {option.default}."
        written.append(f"{indent}{name} : optional")
        written += textwrap.wrap(
            summary, 110, initial_indent=indent + "    ", subsequent_indent=indent + "    "
        )
    written += [
        "",
        f"{indent}The session's default of an option that text can give is ``{SESSION_PREFIX}<name>``.",
    ]
    return "\n".join([*lines[:start], *written, *lines[end:]])


@dataclass(frozen=True)
class GivenOptions:
    """The options of a request that somebody gave."""

    values: Options
    """Their values, which are read."""
    of_session: frozenset[str] = frozenset()
    """The names of those that the user left out, so that the session's default holds."""

    @property
    def of_user(self) -> frozenset[str]:
        """The names of those that the user gave."""
        return frozenset(self.values) - self.of_session

    def without(self, names: Collection[str]) -> "GivenOptions":
        """Return the options without those of these names, which a join cannot honour."""
        kept = cast(Options, {name: value for name, value in self.values.items() if name not in names})
        return GivenOptions(kept, self.of_session - frozenset(names))


def read_options(
    given: Mapping[str, Any], session: Mapping[str, str], door: type
) -> tuple[GivenOptions, list[ThetastreamError]]:
    """Read the options that the user gave, and the session's defaults of the others.

    ``session`` has the settings of the Spark session. None stands for an option that is left out. Returns an
    error for each option that cannot be read.
    """
    known = list_options(door)
    defaults = {
        name: known[name].parse(text) for name, text in read_defaults(session).items() if name in known
    }
    asked = {name: value for name, value in given.items() if value is not None}
    values: dict[str, object] = {}
    problems: list[ThetastreamError] = []
    for name, value in {**defaults, **asked}.items():
        try:
            values[name] = known[name].read(value, name)
        except QueryError as problem:
            problems.append(problem)
    return GivenOptions(cast(Options, values), frozenset(defaults.keys() - asked.keys())), problems


def read_defaults(session: Mapping[str, str]) -> dict[str, str]:
    """Read the defaults of options from the settings of a Spark session.

    Raises
    ------
    QueryError
        UNKNOWN_SETTING if the session sets an option that does not exist or that no text can give.
    """
    found = {
        key.removeprefix(SESSION_PREFIX): value
        for key, value in session.items()
        if key.startswith(SESSION_PREFIX)
    }
    texts = {name for name, option in list_options(Options).items() if option.is_text}
    for name in sorted(found.keys() - texts):
        what = f"the session sets {SESSION_PREFIX}{name}, which is no option that a text can give"
        raise QueryError("UNKNOWN_SETTING", f"{what}{suggest_or_list(name, sorted(texts))}")
    return found


def write_table() -> list[str]:
    """Write the rows of the table of options in docs/reference/settings.md."""
    doors = {"join": JoinOptions, "join_many": TaskOptions, "statements": StatementOptions}
    rows = []
    for name, option in list_options(Options).items():
        where = [door for door, kind in doors.items() if name in list_options(kind)]
        taken = "all" if len(where) == len(doors) else ", ".join(where)
        rows.append(f"| `{name}` | {option.summary} | {option.default} | {taken} |")
    return rows
