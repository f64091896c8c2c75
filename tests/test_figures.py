"""The figures' machinery: files are written, and what a sentence says is what was measured."""

import json
from pathlib import Path

import pytest

from bench.figures import run as runner
from bench.figures.__main__ import main
from bench.figures.collection import write
from bench.figures.figure import Check, Figure, Setup
from bench.figures.page import sentence
from bench.figures.query import Query
from bench.figures.registry import FIGURES
from bench.figures.timing import Setting, Timed

COMMITTED = [figure for figure in FIGURES if (runner.COLLECTION.folder / f"{figure.name}.json").exists()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("figures")
    assert main(["--quick", "--folder", str(folder)]) == 0
    return folder


@pytest.mark.parametrize("name", runner.QUICK)
def test_a_figure_is_a_picture_a_table_and_numbers(folder: Path, name: str) -> None:
    found = json.loads((folder / f"{name}.json").read_text())
    assert found["rows"]
    assert found["checks"]
    assert all(check["is_equal"] for check in found["checks"])
    assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    text = (folder / f"{name}.md").read_text()
    assert f": {found['verdict']['ratio']:.2f}): {found['verdict']['text']}" in text
    assert f"{found['verdict']['ratio']:.2f}" in found["verdict"]["text"]
    assert text in (folder / "figures.md").read_text()


def test_the_matrix_stores_copies_and_the_biclique_none(folder: Path) -> None:
    rows = json.loads((folder / "memory-by-volume.json").read_text())["rows"]
    last = max(row["epoch"] for row in rows)
    for query in {row["query"] for row in rows}:
        held = {
            row["setting"]: row["tuples_per_unit"] * 16
            for row in rows
            if (row["query"], row["epoch"]) == (query, last)
        }
        volume = next(row["volume"] for row in rows if (row["query"], row["epoch"]) == (query, last))
        assert held["JB"] == pytest.approx(volume, rel=1e-5)
        assert held["JM, square"] == pytest.approx(4 * volume, rel=1e-5)


def test_copies_are_those_of_the_formulas(folder: Path) -> None:
    rows = json.loads((folder / "bandwidth-by-rate.json").read_text())["rows"]
    copies = {"JM, square": 4, "JB (random)": 9, "JB-CR2": 5, "JB-CR4": 3, "JB-CR8": 2}
    assert {row["setting"] for row in rows} == set(copies)
    assert all(row["received_per_tuple"] == pytest.approx(copies[row["setting"]], rel=1e-5) for row in rows)


class StandIn:
    """Instead of a Spark session: every setting takes a little longer than the one before."""

    def compare(self, settings: list[Setting], repeat: int, announce: object) -> dict[str, Timed]:
        return {setting.name: self.timed(setting, n) for n, setting in enumerate(settings, 1)}

    def timed(self, setting: Setting, n: int) -> Timed:
        median = {"tuples_per_s": 1e6 / n, "cpu_us_per_tuple": 1.0 * n, "epoch_ms_p50": 100.0 * n}
        median["results_per_tuple"] = 0.5
        times = [100 * n] * (setting.epochs - setting.warmup)
        run = {**median, "setting": setting.name, "ms_by_epoch": times, "received_per_tuple": 2.0}
        return Timed(median, [{**run, "load_before": 0.5}], Check(setting.name, 1, 1))


@pytest.mark.parametrize(
    "figure", [figure for figure in FIGURES if figure.needs_spark], ids=lambda figure: figure.name
)
def test_figures_of_whole_queries(figure: Figure, tmp_path: Path) -> None:
    setup = Setup(0.01, 1, 1, lambda text: None, StandIn())
    found = write(figure, figure.measure(setup), setup, tmp_path)
    assert f"{found['verdict']['ratio']:.2f}" in found["verdict"]["text"]
    text = (tmp_path / f"{figure.name}.md").read_text()
    assert sentence(found) in text
    shown = [row for row in found["rows"] if figure.is_in_table(row)]
    assert len([line for line in text.splitlines() if line.startswith("| ")]) == len(shown) + 1 > 2
    assert "| -" not in text


@pytest.mark.parametrize("figure", COMMITTED, ids=lambda figure: figure.name)
def test_the_page_says_what_the_numbers_say(figure) -> None:
    found = json.loads((runner.COLLECTION.folder / f"{figure.name}.json").read_text())
    assert sentence(found) in runner.COLLECTION.page.read_text()
    assert f"{found['verdict']['ratio']:.2f}" in found["verdict"]["text"]
    assert all(check["is_equal"] for check in found["checks"])
    assert (runner.COLLECTION.folder / f"{figure.name}.png").stat().st_size < 60_000


def test_a_wrong_count_is_an_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Query, "expected", lambda query: -1)
    assert main(["--figures", "bandwidth-by-rate", "--scale", "0.01", "--folder", str(tmp_path)]) == 1
    assert "counts WRONG" in (tmp_path / "bandwidth-by-rate.md").read_text()
