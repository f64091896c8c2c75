"""What notebooks show of the counters of a query."""

from xml.etree import ElementTree

from tests.support.metric_entries import make_entry
from thetastream.spark.observe.metrics import EpochList


def read_table(epochs: EpochList) -> list[list[str]]:
    table = ElementTree.fromstring(f"<div>{epochs._repr_html_()}</div>")
    return [["".join(cell.itertext()) for cell in row] for row in table.iter("tr")]


def test_counters_are_a_table_and_a_list() -> None:
    epochs = EpochList([make_entry(epoch) for epoch in range(2)])
    head, *rows = read_table(epochs)
    assert head == ["epoch", "join", "tuples", "matches", "late", "shed", "seconds"]
    assert rows == [[f"{epoch}", "ab12", "52", "7", "2", "0", "0.80"] for epoch in range(2)]
    assert [one["matched"] for one in epochs] == [7, 7]


def test_pairs_that_are_no_results_have_a_column_of_their_own() -> None:
    """The words and the numbers are those of the page of running queries."""
    nearest = {"plan": {"words": {"the kind of join": "Nearest(k=1, by='a.x - b.x')"}}}
    lookup = nearest | {"join": "cd34", "streams": {}, "tables": {"t": {"version": 1}}, "probed": 40}
    head, row = read_table(EpochList([make_entry(**nearest)]))
    assert (head[3], row[3]) == ("pairs found", "7")
    head, *rows = read_table(EpochList([make_entry(), make_entry(**lookup)]))
    assert head[:6] == ["epoch", "join", "tuples", "matches", "pairs found", "late"]
    assert [row[2:5] for row in rows] == [["52", "7", ""], ["40", "", "7"]]
