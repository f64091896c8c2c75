"""A select list over a join, and the columns that it reads.

Only the columns that a statement reads go through the join (pre-projection).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from pyspark.sql import DataFrame

from thetastream.conditions.clauses import SelectClauses
from thetastream.conditions.statement import HowOption
from thetastream.core.spans import Within
from thetastream.joins.ask.condition import On
from thetastream.joins.ask.request import read_how
from thetastream.joins.compose.nested import NestedJoin
from thetastream.models.base import Model, ModelName
from thetastream.spark.session.configure import choose_name_key
from thetastream.statements.from_clause import MergedColumns


@dataclass(frozen=True)
class JoinSelect:
    """A select list over a join."""

    clauses: SelectClauses
    frames: Mapping[str, DataFrame]
    on: On
    within: Within
    model: Model | ModelName | None
    options: Mapping[str, Any]
    every: str | timedelta | None = None
    """How far the watermark must move before groups are updated again; None updates them in every epoch."""
    merged: MergedColumns = field(default_factory=MergedColumns)
    """The columns that USING merges."""
    how: HowOption = "inner"
    """The kind of a join of two inputs."""
    nested: tuple[NestedJoin, ...] = ()
    """The joins of more than two inputs in a row, if some of them are not inner joins."""

    @property
    def shown(self) -> Mapping[str, DataFrame]:
        """The inputs whose columns results have."""
        if self.nested:
            hidden = {join.alias for join in self.nested if not join.kind.has_pairs}
            return {alias: frame for alias, frame in self.frames.items() if alias not in hidden}
        aliases = list(self.frames)
        return {aliases[side]: self.frames[aliases[side]] for side in read_how(self.how).shown} | {
            alias: self.frames[alias] for alias in aliases[2:]
        }

    @property
    def name_key(self) -> Callable[[str], str]:
        """The function that gives all spellings of one name the same value."""
        return choose_name_key(next(iter(self.frames.values())).sparkSession)

    @property
    def star(self) -> str:
        """The columns that a star stands for."""
        return self.merged.write_star(self.shown)
