"""Kinds of stores by name: texts, parameters, and kinds that another package brings."""

import sys
import traceback
from dataclasses import fields
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import get_type_hints

import pytest

from tests.support.stores import HELD, fill, read_ids
from thetastream.app.cli import main
from thetastream.app.cli.serving import read_stores
from thetastream.core.errors import InvalidQuery, QueryError
from thetastream.results.backend import Backend
from thetastream.results.snapshots import EACH_EPOCH
from thetastream.results.store import Store
from thetastream.stores import (
    REGISTRY,
    CassandraStore,
    DeltaStore,
    HBaseStore,
    ParquetStore,
    PostgresStore,
    list_kinds,
    make_store,
    name_store,
    read_store,
    registry,
)
from thetastream.stores.registry import GROUP

HOST = "postgresql://user@host/results"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package that brings a kind of store, and one that cannot be loaded."""
    info = tmp_path / "packages" / "some_store-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: some-store\nVersion: 1.0\n")
    points = [
        "sqlite = tests.support.sqlite_store:SqliteStore",
        "parquet = tests.support.sqlite_store:SqliteStore",
        "broken = no_such_module:Store",
        "other = pathlib:Path",
    ]
    (info / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *points]))
    monkeypatch.setattr(sys, "path", [str(info.parent), *sys.path])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/out/pairs", ParquetStore("/out/pairs")),
        ("/out/pairs?x=1", ParquetStore("/out/pairs?x=1")),
        ("12:30", ParquetStore("12:30")),
        ("s3://bucket/pairs?region=x", ParquetStore("s3://bucket/pairs?region=x")),
        ("file:/out/pairs", ParquetStore("file:/out/pairs")),
        ("parquet:s3://bucket/pairs?region=x", ParquetStore("s3://bucket/pairs?region=x")),
        ("delta:/out/pairs", DeltaStore("/out/pairs")),
        (f"{HOST}?table=pairs", PostgresStore(HOST, "pairs")),
        (f"postgres:{HOST}?table=a%26b", PostgresStore(HOST, "a&b")),
        (f"{HOST}?host=/x&table=p&sslmode=on", PostgresStore(f"{HOST}?host=/x&sslmode=on", "p")),
        ("cassandra://one,two/kept?table=pairs", CassandraStore("cassandra://one,two/kept", "pairs")),
        ("hbase:host:9090?table=pairs", HBaseStore("host:9090", "pairs")),
        ("hbase://host:9090?table=pairs", HBaseStore("host:9090", "pairs")),
    ],
)  # fmt: skip
def test_a_text_names_the_kind_and_the_parameters_of_a_store(text: str, expected: Store) -> None:
    assert read_store(text) == expected


@pytest.mark.parametrize(
    ("text", "condition", "words"),
    [
        ("parqet:/out", "BAD_VALUE", "did you mean 'parquet'"),
        ("delta:", "BAD_VALUE", "must be a path or KIND:ADDRESS"),
        (f"postgres:{HOST}", "MISSING_KEY", "must have 'table'"),
        (f"{HOST}?tabel=pairs", "MISSING_KEY", "must have 'table'"),
        ("hbase:host?table=pairs", "BAD_VALUE", "host and a port"),
    ],
)
def test_a_wrong_text_is_refused_by_name(text: str, condition: str, words: str) -> None:
    with pytest.raises(QueryError) as error:
        read_store(text)
    assert error.value.condition == condition
    assert words in str(error.value)


def test_all_wrong_parameters_are_named_together() -> None:
    with pytest.raises(InvalidQuery) as error:
        make_store("postgres", {"url": 7, "tabel": "pairs"})
    problems = [(problem.condition, problem.message) for problem in error.value.problems]
    assert problems == [
        ("BAD_VALUE", "'url' of a store of the kind postgres must be a text, not 7"),
        ("UNKNOWN_KEY", "a store of the kind postgres has no 'tabel'; did you mean 'table'?"),
        ("MISSING_KEY", "a store of the kind postgres must have 'table'"),
    ]


def test_every_kind_has_the_name_of_its_table_or_folder() -> None:
    texts = ["/out/a", "delta:/out/a/", *(f"{k}?table=a" for k in (HOST, "cassandra://h/k", "hbase:h:1"))]
    stores = [read_store(text) for text in texts]
    assert [store.kind for store in stores] == list(REGISTRY)
    assert {name_store(store) for store in stores} == {"a"}


def test_the_commands_open_a_store_of_every_kind(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    fill(store, range(4), EACH_EPOCH)
    first, *others = (str(getattr(store, field.name)) for field in fields(store))  # type: ignore[arg-type]
    options = f"{'&' if '?' in first else '?'}table={others[0]}" if others else ""
    text = f"{store.kind}:{first}{options}"
    served = read_stores([f"served={text}"])["served"]
    assert served == store
    assert read_ids(served) == read_ids(store)
    assert main(["verify", text]) == 0
    assert "rows       7\ndamages    0" in capsys.readouterr().out


def test_a_kind_is_a_backend_of_ten_methods_in_at_most_two_files() -> None:
    methods = {name for name in vars(Backend) if not name.startswith("_")}
    assert len(methods) == 10
    for kind, made in REGISTRY.items():
        backend = get_type_hints(made.backend.fget)["return"]  # type: ignore[attr-defined]
        assert methods <= set(dir(backend))
        assert 1 <= len(list(Path(registry.__file__).parent.glob(f"{kind}*.py"))) <= 2


# Another package


@pytest.mark.usefixtures("installed")
def test_another_package_brings_a_kind_by_an_entry_point(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert list_kinds() == [*REGISTRY, "broken", "other", "sqlite"]
    text = f"sqlite:{tmp_path}/file.db?table=pairs&wait_s=5"
    store = read_store(text)
    assert store == make_store("sqlite", {"path": f"{tmp_path}/file.db", "table": "pairs", "wait_s": 5})
    store.describe(HELD)
    fill(store, range(4), EACH_EPOCH)
    expected = read_ids(store)
    assert len(expected) == 7
    # The commands of the command line know it too.
    assert {name: read_ids(served) for name, served in read_stores([text, f"b={text}"]).items()} == {
        "pairs": expected,
        "b": expected,
    }
    assert main(["verify", text]) == 0
    assert "rows       7\ndamages    0" in capsys.readouterr().out


@pytest.mark.usefixtures("installed")
def test_another_package_cannot_replace_a_kind_and_its_errors_name_it(tmp_path: Path) -> None:
    assert read_store(f"parquet:{tmp_path}") == ParquetStore(str(tmp_path))
    for kind, words in (("broken", "no_such_module"), ("other", "subclass of Store")):
        with pytest.raises(QueryError, match=f"STORE_PLUGIN.*'{kind}'.*{words}"):
            read_store(f"{kind}:x")
    with pytest.raises(QueryError, match=r"BAD_VALUE.*'wait_s' .* must be an integer, not 'soon'"):
        read_store("sqlite:x?table=y&wait_s=soon")
    with pytest.raises(QueryError, match=r"BAD_VALUE.*'sqlit'.*did you mean 'sqlite'"):
        read_store("sqlit:x")


def test_a_program_adds_a_kind_to_the_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.support.sqlite_store import SqliteStore

    assert not entry_points(group=GROUP, name="sqlite")
    monkeypatch.setitem(REGISTRY, "sqlite", SqliteStore)
    assert read_store(f"sqlite:{tmp_path}/file.db?table=pairs") == SqliteStore(f"{tmp_path}/file.db", "pairs")


def test_an_entry_point_is_loaded_only_when_its_kind_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: None
) -> None:
    monkeypatch.setattr(EntryPoint, "load", lambda point: pytest.fail(point.name))
    assert read_store(f"delta:{tmp_path}").kind == "delta"
    assert read_store("s3://bucket/pairs").kind == "parquet"


@pytest.mark.parametrize(
    "text",
    [
        "parquet:s3://key:hunter2/x@bucket/pairs?secret_key=hunter2",
        "parquet:other://key:hunter2@bucket/pairs",
        "postgresql://user:hunter2%zz@host/results?table=pairs",
        "postgresql://user:hunter2@[host/results?table=pairs",
        "hbase:user:hunter2@host?table=pairs",
    ],
)
def test_no_error_of_an_address_that_cannot_be_read_shows_its_password(text: str) -> None:
    with pytest.raises(ValueError, match="address") as caught:
        read_store(text).read()
    shown = "".join(traceback.format_exception(caught.value))
    assert "hunter2" not in shown
