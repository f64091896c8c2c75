"""Questions in SQL and subscriptions work on every kind of store."""

import json
from pathlib import Path

import pytest

from tests.support.stores import HELD, fill, stage
from thetastream.app.cli import main
from thetastream.results.question import query
from thetastream.results.snapshots import EACH_EPOCH, Snapshots
from thetastream.results.store import Store
from thetastream.results.subscription import subscribe
from thetastream.stores import ParquetStore


def test_questions_and_subscriptions_read_every_store(store: Store) -> None:
    rule = Snapshots(every="2 minutes")
    for epoch in range(7):
        store.commit("q", epoch, stage(store, epoch, epoch), rule)
    asked = "SELECT sum(id) AS total FROM results WHERE a.\"symbol\" = 's1'"
    assert query(store, asked, snapshot=2).to_pydict() == {"total": [5]}
    found = [
        (snapshot.number, rows["id"].to_pylist())
        for snapshot, rows in subscribe(store, 1, sql="SELECT id FROM results ORDER BY id", patience="0 s")
    ]
    assert found == [(2, [3, 4]), (3, [5, 6])]


def test_a_command_asks_a_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = ParquetStore(str(tmp_path / "pairs"))
    store.describe(HELD)
    fill(store, range(3), EACH_EPOCH)

    def ask(*arguments: str) -> list[str]:
        assert main(["query", store.path, *arguments]) == 0
        return capsys.readouterr().out.splitlines()

    # 1. All columns, as a table that says how much it leaves out.
    lines = ask("--limit", "1")
    assert lines[1].split("|")[1].strip() == "id"
    assert lines[3].split("|")[2].startswith("{s0, 2026-01-05 09:00:00+00:00}")
    assert lines[5:] == ["5 more rows; --limit shows more"]
    # 2. A question, to a snapshot by its number or its time.
    count = "SELECT count(*) AS n, NULL AS x FROM results"
    assert ask(count) == ["+-+----+", "|n|x   |", "+-+----+", "|6|NULL|", "+-+----+"]
    for snapshot in ("2", "2026-01-05 09:01:30"):
        assert ask(count, "--json", "--snapshot", snapshot) == ['{"n": 3, "x": null}']
    rows = ask("SELECT a, '\\xAB'::BLOB AS b, 1.5::DECIMAL(3, 1) AS d FROM results LIMIT 1", "--json")
    assert [json.loads(row) for row in rows] == [
        {"a": {"symbol": "s0", "ts": "2026-01-05T09:00:00+00:00"}, "b": "ab", "d": "1.5"}
    ]
    # 3. Errors are those of th.query.
    assert main(["query", store.path, "DROP TABLE results"]) == 1
    assert "[STORE_QUERY] a question must be one SELECT" in capsys.readouterr().err
    assert main(["query", str(tmp_path / "nothing")]) == 1
    assert "[NO_STORE]" in capsys.readouterr().err
