"""What all families of joins have in common.

A family turns a request into a planned join: a value that knows its inputs and its models, explains itself,
and describes the units that run it. Nothing here needs Spark. The code at the rim builds a DataFrame from the
flow of a planned join.

To add a family, write one file and one entry in ``thetastream.families.registry.FAMILIES``.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from thetastream.conditions import Phrase, Predicate
from thetastream.families.request import JoinRequest, Refusal
from thetastream.lowering.query import Stream
from thetastream.lowering.report import Section
from thetastream.models.base import Model
from thetastream.runtime.flow import Emitted, Flow, RunContext


@dataclass(frozen=True)
class FinalJoin:
    """The join of two inputs that finds the results of a plan. Its units can fold them into views."""

    streams: tuple[Stream, Stream]
    """Its inputs. The left one may be the result of other joins."""
    on: tuple[str | Predicate, ...]
    """Its condition."""
    checks: tuple[str, ...]
    """SQL conditions over its inputs that results satisfy too, and that its units do not evaluate."""
    relocate: Callable[[Phrase], Phrase] = lambda phrase: phrase
    """It writes a phrase over the streams of the plan as a phrase over these inputs."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What the code around a join must know of it."""

    condition: str
    """The condition as the user wrote it."""
    result_time: str | None
    """SQL of the latest event time of a row, over the results; None if rows have no time."""
    shows_result_time: bool = False
    """Whether the user gets the result time as a column."""
    has_deletes: bool = False
    """Whether results have the column ``CHANGE_TYPE``, because a stream has deletes."""
    is_prompt: bool = True
    """Whether each result leaves before the watermark can pass it. Only then is its event time usable."""
    longest_window_us: int = 0
    """The longest time window of the query, in microseconds. It is 0 if the query sets none."""
    emitted: Emitted | str = "Spark computes results behind the units"
    """What units emit, so that they can write results into a store themselves, or why they cannot."""
    final: FinalJoin | str = "no units find the matches"
    """The join whose units can fold the matches into views, or why none can."""
    hidden: tuple[str, ...] = ()
    """The columns of the results that only ``result_time`` reads."""
    is_ordered: bool = False
    """Whether results come in the order of arrival, and have the column ``ARRIVAL``."""
    joins_beside: tuple[str, ...] = ()
    """What joins rows beside the units of the models, as words for a description."""


class Planned(Protocol):
    """A join by units that is checked and planned. It is frozen, and it needs no Spark."""

    @property
    def inputs(self) -> tuple[Stream, ...]:
        """The streams, in the order of the result's columns."""

    @property
    def models(self) -> tuple[Model, ...]:
        """The models of the units."""

    @property
    def run(self) -> RunContext:
        """The settings with which the units run."""

    @property
    def facts(self) -> Facts:
        """What the code around the join must know of it."""

    def explain(self) -> tuple[Section, ...]:
        """Explain the join, with a section for each stage of the plan."""

    def flow(self, read: Collection[str] | None = None) -> Flow:
        """Describe how tuples become results.

        Parameters
        ----------
        read : collection of str, optional
            The block columns that a store reads. Units then emit these columns only. None stands for rows
            with all columns.
        """


class Family(Protocol):
    """A family of joins, which plans them."""

    @property
    def refused(self) -> Mapping[str, Refusal]:
        """The options that the family does not honour, and why."""

    def takes(self, request: JoinRequest) -> bool:
        """Whether the family plans this request. The first one that takes a request plans it."""

    def plan(self, request: JoinRequest) -> Planned:
        """Plan a request.

        Raises
        ------
        QueryError
            If the request has problems. It lists all of them.
        """
