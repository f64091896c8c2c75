"""A model needs one file and one entry in the registry; a toy model is planned, explained, listed and run."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pyspark.sql import DataFrame, SparkSession

import thetastream as th
from tests.support.streams import outcome, replay
from thetastream.app import cli
from thetastream.app.job.spec import parse_model
from thetastream.core.sides import Role, Side
from thetastream.joins.compose.pipeline import Pipeline
from thetastream.models import REGISTRY
from thetastream.models.base import Hashes, Model, Route, split

DOCS = Path(__file__).parents[2] / "docs"


def make_toy() -> type[Model]:
    """Make the toy model in a function, so that Python workers get its code and need no test module."""

    @dataclass(frozen=True)
    class Fragment(Model):
        """Units that each store a fragment of the left stream, and all of the right stream."""

        units: int = 1
        name: ClassVar[str] = "fragment"

        @property
        def n_units(self) -> int:
            return self.units

        def route(self, side: Side, n_rows: int, hashes: Hashes) -> Iterator[Route]:
            if side is Side.RIGHT:
                yield from (Route(unit, Role.BOTH, None) for unit in range(self.units))
                return
            for unit, rows in split(hashes.tuples % self.units, self.units):
                yield Route(unit, Role.BOTH, rows)

        def counts(self, unit: int, side: Side) -> bool:
            return side is Side.LEFT or unit == 0

        def describe(self) -> str:
            return f"fragment: {self.units} unit(s) store left in fragments, and copies of right"

        def __repr__(self) -> str:
            return f"Fragment(units={self.units})"

    return Fragment


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Model]:
    kind: Any = make_toy()
    monkeypatch.setitem(REGISTRY, "fragment", kind)
    return kind


ROWS = [(n, n % 7, n // 3) for n in range(60)]
ON, WITHIN = "a.k < b.k AND a.id <> b.id", "3 seconds"
PAIRS = Counter(
    (a, b) for a, ak, at in ROWS for b, bk, bt in ROWS if ak < bk and a != b and abs(at - bt) <= 3
)


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(ROWS, "id INT, k INT, at INT").selectExpr(
        "id", "k", "timestamp_seconds(at) AS ts"
    )


def test_a_new_model_is_planned_and_explained(toy: Callable[[int], Model], frame: DataFrame) -> None:
    plan = th.plan({"a": frame, "b": frame}, ON, WITHIN, toy(2))
    assert isinstance(plan, th.Plan)
    assert plan.aliases == ("a", "b")
    assert plan.event_times == {"a": "ts", "b": "ts"}
    text = plan.explain()
    assert "fragment: 2 unit(s) store left in fragments" in text
    assert "sends a tuple: 1, 2" in text
    assert any(line.startswith("* Fragment(units=2)") for line in text.splitlines())


def test_a_new_model_is_compared_and_listed(
    toy: Callable[[int], Model], frame: DataFrame, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "  Fragment(units=2)" in th.plan({"a": frame, "b": frame}, ON, WITHIN).explain()
    with pytest.raises(th.QueryError, match="Fragment"):
        th.plan({"a": frame, "b": frame}, ON, WITHIN, "fastest")
    assert cli.main(["models"]) == 0
    assert "fragment   Units that each store a fragment" in capsys.readouterr().out
    problems: list[Any] = []
    assert parse_model({"name": "fragment", "units": 3}, problems) == toy(3)
    assert parse_model({"name": "fragment", "cores": 3}, problems) is None
    assert [problem.condition for problem in problems] == ["UNKNOWN_KEY"]


def test_a_new_model_joins_batch_frames(toy: Callable[[int], Model], frame: DataFrame) -> None:
    streams = {"a": frame, "b": frame}
    found = th.join(streams, ON, WITHIN, toy(3)).select("a.id", "b.id").collect()
    assert Counter(map(tuple, found)) == PAIRS
    tasks = th.join_many(streams, {"all": {"on": ON, "within": WITHIN}}, toy(2))
    assert tasks.together.count() == PAIRS.total()
    assert tasks.plan.aliases == ("a", "b")
    three = th.plan({**streams, "c": frame}, "a.id = b.id AND b.id = c.id AND a.k = 3", model=toy(2))
    assert isinstance(three.join, Pipeline)
    assert sorted(row.a.id for row in three.dataframe().collect()) == [n for n, k, _ in ROWS if k == 3]
    count = th.aggregate(streams, ON, WITHIN, aggs={"n": "count(*)"}, model=toy(2))
    assert [row.n for row in count.collect()] == [PAIRS.total()]


@pytest.mark.usefixtures("only_epochs_with_rows")
def test_a_new_model_joins_streams(toy: Callable[[int], Model], frame: DataFrame, tmp_path: Path) -> None:
    epochs = [range(30), range(30, 60)]
    streams = {alias: replay(frame, epochs, tmp_path).withWatermark("ts", "10 seconds") for alias in "ab"}
    found = outcome(th.join(streams, ON, WITHIN, toy(3)), ["a.id", "b.id"], tmp_path)
    assert found.rows == PAIRS
    assert sum(epoch["stored"] for epoch in found.metrics) == len(ROWS) * (1 + 3)


def test_what_a_new_model_cannot_do_is_refused(toy: Callable[[int], Model], frame: DataFrame) -> None:
    with pytest.raises(th.QueryError, match="SPLIT_NEEDED"):
        th.plan({"a": frame, "b": frame}, ON, th.Rows(5), toy(2))


@pytest.mark.parametrize("name", REGISTRY)
def test_a_family_takes_every_model(name: str, frame: DataFrame) -> None:
    model: Any = REGISTRY[name](2)
    assert model.name == name
    assert th.plan({"a": frame, "b": frame}, ON, WITHIN, model).models[0].n_units == model.n_units
    streams = {"a": frame, "b": frame, "c": frame}
    three = th.plan(streams, "a.k < b.k AND b.k < c.k", WITHIN, model)
    assert all(made.n_units > 0 for made in three.models)


@pytest.mark.parametrize("name", REGISTRY)
def test_the_table_of_models_has_every_model(name: str) -> None:
    pages = [page.read_text() for page in DOCS.rglob("*.md")]
    (page,) = [page for page in pages if "\n## Side by side\n" in page]
    table = page[page.index("\n## Side by side\n") + 1 :].split("\n## ")[0]
    assert f"`{REGISTRY[name].__name__}(" in table
