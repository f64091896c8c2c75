"""No message shows a password, and no value that is printed controls a terminal."""

import itertools
import traceback
from collections.abc import Callable

import pytest

import thetastream as th
from thetastream.app.cli import main
from thetastream.app.cli.questions import draw_table
from thetastream.app.cli.serving import read_checkpoints, read_named_store
from thetastream.core.addresses import hide_all_secrets, hide_secrets
from thetastream.core.errors import ThetastreamError
from thetastream.core.plain_text import show_controls
from thetastream.spark.session.jvm import hides

PASSWORDS = (
    "hunter2",
    "a@hunter2",
    "1/hunter2",
    "x?hunter2",
    "x#hunter2",
    "hunter2:x",
    "hunter2%zz",
    "[hunter2",
)
PLACES = ("@host/db", "@host:1/db", "@", "@/", "@[::1/db", "@host/db?password=hunter2")
ADDRESSES = [
    f"{scheme}://user:{password}{place}"
    for scheme, password, place in itertools.product(
        ("postgresql", "s3", "jdbc:mysql", "other"), PASSWORDS, PLACES
    )
]


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_is_shown_without_its_password(address: str) -> None:
    assert "hunter2" not in hide_secrets(address)
    assert hide_secrets(address).startswith(address.partition("user")[0])
    error = ThetastreamError("X", f"a folder must be there, not {address!r}, and \u201c{address}\u201d too")
    assert "hunter2" not in f"{error}{error!r}{error.message}"
    assert error.message.startswith("a folder must be there, not ")


@pytest.mark.parametrize(
    ("call", "address"),
    [
        (th.query, "postgresql://user:hunter2@host/db"),
        (th.subscribe, "postgresql://host/db?password=hunter2"),
        (th.subscribe, "host=x password=hunter2 user=y"),
        (read_named_store, "hbase:?user:hunter2@host&password=hunter2&table=t"),
        (lambda address: read_checkpoints([address]), "s3://user:hunter2@/"),
        (lambda address: th.HBaseStore(address, "pairs").read(), "hbase://host?password=hunter2"),
    ],
)
def test_an_address_in_a_wrong_place_shows_no_password(call: Callable[..., object], address: str) -> None:
    with pytest.raises(ThetastreamError) as caught:
        call(address, "SELECT 1") if call is th.query else call(address)
    assert "hunter2" not in "".join(traceback.format_exception_only(caught.value))


def test_other_texts_stay_as_they_are() -> None:
    for text in (
        "a.x < b.x AND a.name = 'x@y'",
        "hdfs://host:8020/a@b",
        "s3://bucket/a@b",
        "see https://host:80/page and ask me@host",
        "a password = b password",
    ):
        assert hide_all_secrets(text) == text


def test_values_and_errors_control_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    evil = "\x1b]52;c;aGk=\x07\x9b2J\r\u202egpj.exe\u2028|\n+--+"
    (row,) = list(draw_table([f"n{evil}"], [[evil]]))[3:-1]
    assert row.isprintable()
    assert row == f"|{show_controls(evil, is_line=True)} |"
    assert "\\x1b]52" in row
    assert "\\n+--+" in row
    assert show_controls("\u00e9 \u4e2d \u05d0 \U0001f469\u200d\U0001f467 \n\t") == (
        "\u00e9 \u4e2d \u05d0 \U0001f469\u200d\U0001f467 \n\t"
    )
    assert main(["query", f"{evil}", "SELECT 1"]) == 1
    assert "\x1b" not in capsys.readouterr().err


def test_settings_with_secrets_are_in_no_command_line() -> None:
    secret = {
        "spark.hadoop.fs.s3a.secret.key": "x",
        "spark.hadoop.fs.azure.account.key.a.blob.core.windows.net": "x",
        "spark.sql.catalog.pg.url": "jdbc:postgresql://user:hunter2@host/db",
        "spark.sql.catalog.my.url": "jdbc:mysql://host/db?user=x&password=hunter2",
        "spark.sql.catalog.rest.credential": "id:x",
        "spark.ssl.keyPassword": "x",
        "spark.my.passphrase": "x",
    }
    needed = {
        "spark.master": "local[2]",
        "spark.driver.extraJavaOptions": "-Djavax.net.ssl.trustStorePassword=x -Xss8m",
        "spark.hadoop.fs.s3a.endpoint": "http://host:9000",
        "spark.sql.shuffle.partitions": "2",
    }
    options = {**secret, **needed}
    assert [key for key in options if hides(options, key)] == [*secret]
    # Python does not read this expression.
    options["spark.redaction.regex"] = r"\p{Sc}+"
    assert [key for key in options if hides(options, key)] == [*secret]
