"""A question is a select list over a join."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pyspark.sql import DataFrame

from thetastream.core.windows import Within
from thetastream.frontend.condition import On
from thetastream.models.base import Model
from thetastream.predicate import Phrase


@dataclass(frozen=True)
class Selection:
    """A select list and its groups; every expression is a slice of the user's text."""

    items: Phrase
    group_by: Phrase | None = None
    having: Phrase | None = None
    is_distinct: bool = False

    @property
    def phrases(self) -> tuple[Phrase, ...]:
        """All expressions over the results of the join."""
        optional = (self.group_by, self.having)
        return (self.items, *(phrase for phrase in optional if phrase is not None))


@dataclass(frozen=True)
class Question:
    """A select list over a join."""

    selection: Selection
    frames: Mapping[str, DataFrame]
    on: On
    within: Within
    model: Model | str | None
    settings: Mapping[str, Any]
    every: str | timedelta | None = None
    """How far the watermark must move before groups are updated again; None updates them in every epoch."""
    is_explain: bool = False
    """Whether the answer is the plan and not the rows."""
