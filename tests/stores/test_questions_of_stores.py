"""Questions in SQL and subscriptions work on every kind of store."""

from tests.support.stores import stage
from thetastream.results.question import query
from thetastream.results.snapshots import Snapshots
from thetastream.results.store import Store
from thetastream.results.subscription import subscribe


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
