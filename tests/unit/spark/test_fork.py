"""``fork`` copies the checkpoint of a stopped query for another condition, and refuses what does not fit."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.checkpoints import write_checkpoint
from thetastream.core.columns import FORK, HEADER, KIND, UNIT
from thetastream.core.errors import QueryError, StateError
from thetastream.core.identity import CONDITION, Identity, Part, decode_identity
from thetastream.engine.inbox import Inbox
from thetastream.engine.two_stream.query import UnitState
from thetastream.results.writer import Writer
from thetastream.runtime.inbox_rows import COLUMNS, take_in
from thetastream.runtime.state.manifest import NOTHING, Manifest, decode
from thetastream.spark.fork import fork
from thetastream.spark.sources.identity import IdentityReader

MEANING: dict[str, Any] = {"filters": [[], []], "computed": [[], []], "equalities": [], "dimensions": ["x"]}
LIMIT: Any = None


def query(words: str = "abs(a.x - b.x) <= 1", **changes: Any) -> Identity:
    parts = {
        "stream 'a'": Part('["x int"]', "x int", "columns"),
        CONDITION: Part(json.dumps({**MEANING, "dimensions": [words], **changes}), words),
        "the window": Part("[[-9, 9]]", "9 microseconds", "narrower"),
        "the model": Part("Split(cores=2)", "Split(cores=2)"),
    }
    return parts


OLD, NEW = query(), query("abs(a.x - b.x) <= 2")


def make_fork(folder: Path, offset: dict[str, Any] | None = None) -> Path:
    offset = IdentityReader(OLD).initialOffset() if offset is None else offset
    path = write_checkpoint(folder / "old", 7, 7, {"logOffset": 3}, offset)
    assert fork(path, folder / "new") == 7
    return folder / "new"


def read_offset(path: Path, epoch: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((path / f"offsets/{epoch}").read_text().splitlines()[3])
    return found


def test_a_fork_is_another_query_with_the_same_state(tmp_path: Path) -> None:
    new = make_fork(tmp_path)
    assert json.loads((new / "metadata").read_text())["id"] != "eb16ab27"
    assert (new / "state/0/0/1.changelog").exists()
    assert not (new / "offsets/.7.crc").exists()
    assert read_offset(new, 7)["fork"] == {"of": "eb16ab27", "is_begun": False}
    assert "fork" not in read_offset(tmp_path / "old", 7)
    # A store expects the epoch after the last one of the old query first.
    assert Writer(str(new)).ancestor == ("eb16ab27", 7)
    assert Writer(str(tmp_path / "old")).ancestor is None


def test_each_unit_hears_once_whose_tuples_it_has(tmp_path: Path) -> None:
    reader = IdentityReader(NEW, [5, 8])
    start = read_offset(make_fork(tmp_path), 7)
    end = reader.latestOffset(start, LIMIT)
    assert reader.latestOffset(end, LIMIT) == end
    (partition,) = reader.partitions(start, end)
    (batch,) = reader.read(partition)
    assert [(row[UNIT], row[KIND]) for row in batch.to_pylist()] == [(5, FORK), (8, FORK)]
    assert decode_identity(json.loads(batch.column(HEADER)[0].as_py())) == OLD
    assert reader.partitions(end, end) == []
    # 2. The unit reads the manifest of the old query, in this epoch only.
    told = take_in(Inbox(), [[row[name] for name in COLUMNS] for row in batch.slice(0, 1).to_pylist()])
    written = Manifest(NOTHING, None, UnitState()).encode(OLD)
    assert decode(written, NEW, UnitState, told.forked_from) == Manifest(NOTHING, None, UnitState())
    with pytest.raises(StateError, match="STATE_OF_ANOTHER_QUERY"):
        decode(written, NEW, UnitState)


@pytest.mark.parametrize(
    ("now", "routes_by_content", "what"),
    [
        (query(filters=[["a.x>0"], []]), False, r"the filters of stream 1 were none, they are a\.x>0"),
        (query(computed=[[], [["k0", "sqrt(b.x)"]]]), False, r"the computed values of stream 2 .* sqrt"),
        (NEW, True, "random routing"),
        ({**NEW, "the model": Part("Split(cores=3)", "Split(cores=3)")}, False, "the model was Split"),
        ({**NEW, "the window": Part("[[-10, 9]]", "10", "narrower")}, False, "not inside the old one"),
        ({**NEW, "the kind of join": Part("left", "left")}, False, "the kind of join is left"),
        (
            {name: part for name, part in NEW.items() if name != CONDITION},
            False,
            "only a join of two streams",
        ),
    ],
)
def test_a_condition_that_stored_tuples_cannot_serve_is_refused(
    now: Identity, routes_by_content: bool, what: str, tmp_path: Path
) -> None:
    start = read_offset(make_fork(tmp_path), 7)
    with pytest.raises(StateError, match=rf"\[FORK\].*{what}"):
        IdentityReader(now, [5], routes_by_content).latestOffset(start, LIMIT)


@pytest.mark.parametrize("field", ["mailbox", "control"])
def test_units_that_send_messages_or_change_are_refused(field: str, tmp_path: Path) -> None:
    with pytest.raises(QueryError, match=r"\[FORK\]"):
        make_fork(tmp_path, {**IdentityReader(OLD).initialOffset(), field: {}})
    assert not (tmp_path / "new").exists()


def test_other_state_a_running_epoch_and_a_full_folder_are_refused(tmp_path: Path) -> None:
    offset = IdentityReader(OLD).initialOffset()
    windows = write_checkpoint(tmp_path / "windows", 7, 7, offset)
    (windows / "state/1").mkdir()
    with pytest.raises(QueryError, match=r"\[FORK\].*1 joins and 2 operators"):
        fork(windows, tmp_path / "new")
    begun = write_checkpoint(tmp_path / "begun", 8, 7, offset)
    with pytest.raises(StateError, match="EPOCH_UNFINISHED"):
        fork(begun, tmp_path / "new")
    with pytest.raises(QueryError, match=r"\[FORK\].*must be an empty folder"):
        fork(begun, windows)


def test_the_row_has_the_columns_of_the_exchange(tmp_path: Path) -> None:
    (batch,) = IdentityReader(NEW, [5]).read(
        IdentityReader(NEW, [5]).partitions(
            read_offset(make_fork(tmp_path), 7), IdentityReader(NEW).initialOffset()
        )[0]
    )
    assert isinstance(batch, pa.RecordBatch)
    assert batch.schema.names == [UNIT, *COLUMNS]
