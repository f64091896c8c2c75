"""What notebooks show of the counters of a query."""

from xml.etree import ElementTree

from tests.support.metric_entries import make_entry
from thetastream.spark.observe.metrics import EpochList


def test_counters_are_a_table_and_a_list() -> None:
    epochs = EpochList([make_entry(epoch, left=60, right=40) for epoch in range(2)])
    table = ElementTree.fromstring(f"<div>{epochs._repr_html_()}</div>")
    head, *rows = [["".join(cell.itertext()) for cell in row] for row in table.iter("tr")]
    assert head == ["epoch", "join", "tuples", "matched", "late", "shed", "seconds"]
    assert rows == [[f"{epoch}", "ab12", "100", "7", "2", "0", "0.80"] for epoch in range(2)]
    assert [one["matched"] for one in epochs] == [7, 7]
