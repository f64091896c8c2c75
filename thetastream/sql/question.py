"""What is asked: a select list over a join."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pyspark.sql import DataFrame

from thetastream.frontend.condition import On
from thetastream.models.base import Model
from thetastream.sql.statement import Statement
from thetastream.windows import Within


@dataclass(frozen=True)
class Question:
    """A select list over a join."""

    statement: Statement
    """Its select list, groups, HAVING, DISTINCT and EXPLAIN."""
    frames: Mapping[str, DataFrame]
    on: On
    within: Within
    model: Model | str | None
    settings: Mapping[str, Any]
    every: str | timedelta | None = None
    """How far the watermark moves before groups are updated again."""
