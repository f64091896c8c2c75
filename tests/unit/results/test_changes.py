"""Changes that a store has read are added up, however many chunks they have."""

import pyarrow as pa

from thetastream.results.net_rows import add_up, cancel_changes, join_chunks

PAIR = pa.struct(
    [
        ("text", pa.string()),
        ("list", pa.list_(pa.struct([("bytes", pa.binary())]))),
        ("map", pa.map_(pa.string(), pa.int64())),
    ]
)
ROW = {"text": "a", "list": [{"bytes": b"x"}, None], "map": [("k", 1)]}
EMPTY = {"text": None, "list": None, "map": None}


def test_chunks_become_one_array_that_may_have_more_than_two_gigabytes() -> None:
    chunks = pa.chunked_array([pa.array([ROW, None], PAIR), pa.array([EMPTY], PAIR)])
    joined = join_chunks(chunks)
    assert joined.to_pylist() == chunks.to_pylist()
    assert joined.type.field("text").type == pa.large_string()
    assert joined.type.field("list").type == pa.large_list(pa.struct([("bytes", pa.large_binary())]))
    assert join_chunks(pa.chunked_array([pa.array(["a"])])).type == pa.string()


def test_changes_of_several_chunks_cancel_each_other() -> None:
    rows = pa.chunked_array([pa.array([ROW, EMPTY], PAIR), pa.array([None, ROW], PAIR)])
    kinds = pa.chunked_array([["insert"], ["insert", "insert", "delete"]])
    changes = pa.table({"pair": rows, "_change_type": kinds})
    assert cancel_changes(changes)["pair"].to_pylist() == [EMPTY, None]
    held = add_up(changes)
    assert held.schema == pa.schema([("pair", PAIR)])
    assert held.to_pylist() == [{"pair": EMPTY}, {"pair": None}]
