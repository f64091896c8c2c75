"""A question is a select list over a join."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from pyspark.sql import DataFrame

from thetastream.core.how import HOWS
from thetastream.core.windows import Within
from thetastream.frontend.condition import On
from thetastream.models.base import Model
from thetastream.sql.select_clauses import SelectClauses
from thetastream.sql.using import MergedColumns


@dataclass(frozen=True)
class Question:
    """A select list over a join."""

    clauses: SelectClauses
    frames: Mapping[str, DataFrame]
    on: On
    within: Within
    model: Model | str | None
    settings: Mapping[str, Any]
    every: str | timedelta | None = None
    """How far the watermark must move before groups are updated again; None updates them in every epoch."""
    merged: MergedColumns = field(default_factory=MergedColumns)
    """The columns that USING merges."""

    how: str = "inner"
    """The kind of the join."""

    @property
    def shown(self) -> Mapping[str, DataFrame]:
        """The inputs whose columns results have."""
        aliases = list(self.frames)
        return {aliases[side]: self.frames[aliases[side]] for side in HOWS[self.how].shown} | {
            alias: self.frames[alias] for alias in aliases[2:]
        }

    @property
    def star(self) -> str:
        """The columns that a star stands for."""
        return self.merged.write_star(self.shown)
