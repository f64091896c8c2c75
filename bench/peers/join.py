"""The join that a peer runs. Cells give the condition an equality, if it has none."""

import json
import re
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

Figures = dict[str, Any]


@dataclass(frozen=True)
class Join:
    """What to join. ``files`` has the Parquet files of both streams, in the order of their event time."""

    workload: str
    aliases: tuple[str, str]
    files: tuple[list[str], list[str]]
    on: str
    """The condition in SQL."""
    window_us: int
    cells: list[dict[str, Any]]
    """The cells of the condition (``bench/core/join_sql.py``), if it has no equality."""
    folder: str
    """A folder for temporary files."""

    def files_of(self, alias: str) -> list[str]:
        """Return the files of a stream."""
        return self.files[self.aliases.index(alias)]

    def types_of(self, alias: str) -> dict[str, str]:
        """Return the columns of a stream with the names of their Arrow types."""
        return {field.name: str(field.type) for field in pq.read_schema(self.files_of(alias)[0])}

    def link(self, alias: str) -> Path:
        """Make a new folder with links to the files of a stream."""
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        for file in self.files_of(alias):
            (folder / Path(file).name).symlink_to(file)
        return folder

    @property
    def form(self) -> str:
        """Say how the condition got its equality."""
        return f"grid cells of {self.cells[0]['width']}" if self.cells else "plain"

    def write_columns(self) -> tuple[str, str]:
        """Write the columns of a left tuple with its cells, and those of a right tuple with the first and the
        last cell that it reaches."""
        left = [_floor(cell["left"], 0, cell["width"], f"cell_{n}") for n, cell in enumerate(self.cells)]
        right = [
            _floor(cell["right"], sign * cell["reach"], cell["width"], f"{name}_{n}")
            for n, cell in enumerate(self.cells)
            for sign, name in ((-1, "low"), (1, "high"))
        ]
        return ", ".join(["*", *left]), ", ".join(["*", *right])

    def write_condition(self) -> str:
        """Write the condition in standard SQL, with the equalities of cells."""
        left, right = self.aliases
        equalities = [f"{left}.cell_{n} = {right}.cell_{n}" for n in range(len(self.cells))]
        on = re.sub(r"(\w+\.\w+)::DOUBLE", r"CAST(\1 AS DOUBLE)", self.on)
        return " AND ".join([on, *equalities])


def _floor(column: str, offset: float, width: float, name: str) -> str:
    return f"CAST(FLOOR((CAST({column} AS DOUBLE) + ({offset})) / {width}) AS INT) AS {name}"


def main(run: Callable[[Join], Figures]) -> None:
    """Run a join as the arguments of the program say."""
    given, output = map(Path, sys.argv[1:])
    output.write_text(json.dumps(run(Join(**json.loads(given.read_text())))))
