"""The route of running queries. It reads the files of metrics that queries write, and asks no query."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from fastapi import FastAPI, Query

from thetastream.service.bodies import PROBLEMS
from thetastream.service.metrics_file import KEPT_EPOCHS, MetricsFile
from thetastream.service.running import RunningQuery, describe_query

SHOWN_EPOCHS = 120
"""The number of epochs of each join in an answer, unless a request names another."""


def add_query_routes(app: FastAPI, metrics: Sequence[Path]) -> None:
    """Add the route of the queries whose metrics are in these files."""
    files = [MetricsFile(path) for path in metrics]

    @app.get("/queries", responses=PROBLEMS)
    def list_queries(
        epochs: Annotated[int, Query(ge=1, le=KEPT_EPOCHS)] = SHOWN_EPOCHS,
    ) -> list[RunningQuery]:
        return [
            describe_query(name, state, lines, epochs)
            for file in files
            for name, (state, lines) in file.read().items()
        ]
