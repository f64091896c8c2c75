"""What notebooks show of a store and of its snapshots."""

from pathlib import Path
from xml.etree import ElementTree

from tests.support.stores import HELD, fill
from thetastream.results.snapshots import EACH_EPOCH
from thetastream.results.store import SHOWN_SNAPSHOTS
from thetastream.stores import REGISTRY, DeltaStore, ParquetStore


def test_a_store_shows_what_it_has_and_its_last_snapshots(tmp_path: Path) -> None:
    store = ParquetStore(str(tmp_path / "a&b"))
    assert "a&amp;b must hold results" in store._repr_html_()
    store.describe(HELD)
    fill(store, range(12), EACH_EPOCH)
    page = ElementTree.fromstring(f"<div>{store._repr_html_()}</div>")
    facts = {row[0].text: row[1].text for row in page.find(".//tbody") or ()}
    assert facts["keys"] == "a.symbol, id"
    assert (facts["time"], facts["rows"], facts["snapshots"]) == ("result_time", "24", "12")
    assert len(page.findall("table/tbody/tr")) == SHOWN_SNAPSHOTS
    snapshots = store.snapshots()
    assert snapshots == list(snapshots)
    table = ElementTree.fromstring(f"<div>{snapshots._repr_html_()}</div>")  # type: ignore[attr-defined]
    assert ["".join(cell.itertext()) for cell in table.find(".//tbody/tr") or ()] == [
        *("1", "2026-01-05 09:00:00", "1", "epoch")
    ]


def test_notebooks_complete_what_users_need(tmp_path: Path) -> None:
    assert dir(ParquetStore(str(tmp_path))) == sorted(["path", *ParquetStore.for_users])
    assert "open_table" in dir(DeltaStore(str(tmp_path)))
    for kind in REGISTRY.values():
        assert [name for name in kind.for_users if not hasattr(kind, name)] == []
