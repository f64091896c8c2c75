"""Figures: their files are written, and their sentences state the measured numbers."""

import json
import shutil
from pathlib import Path

import pytest

from bench import papers
from bench.__main__ import main
from bench.core import drawing, machine
from bench.core.clock import Setting, Timed
from bench.core.columns import write_value
from bench.core.figure import Run
from bench.core.page import describe_time, sentence
from bench.core.query import Query
from bench.core.rows import Check

QUICK = ("memory-by-volume", "bandwidth-by-rate")
ALL = {name: paper for paper in papers.PAPERS for name in papers.names(paper)}
TIMED = [
    name
    for paper in ("bistream", "splitjoin")
    for name in papers.names(paper)
    if papers.figure(name).needs_spark
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("figures")
    assert main(["bistream", "--quick", "--figures", ",".join(QUICK), "--folder", str(folder)]) == 0
    return folder / "bistream"


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_a_figure_is_a_picture_a_table_and_numbers(folder: Path, name: str) -> None:
    found = json.loads((folder / f"{name}.json").read_text())
    assert found["rows"]
    assert found["checks"]
    assert all(check["is_equal"] for check in found["checks"])
    assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    text = (folder / f"{name}.md").read_text()
    assert f": {found['verdict']['ratio']:.2f}): {found['verdict']['text']}" in text
    assert write_value(found["verdict"]["ratio"]) in found["verdict"]["text"]
    assert text in (folder / "README.md").read_text()


@pytest.mark.slow
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


@pytest.mark.slow
def test_copies_are_those_of_the_formulas(folder: Path) -> None:
    rows = json.loads((folder / "bandwidth-by-rate.json").read_text())["rows"]
    copies = {"JM16": 4, "JB8": 5, "JB8-CR2": 3, "JB8-CR4": 2}
    assert {row["setting"] for row in rows} == set(copies)
    # A band may touch two cells of the range routing, so that some tuples have a copy more.
    equal = [row for row in rows if row["query"] != "Band"]
    assert all(row["received_per_tuple"] == pytest.approx(copies[row["setting"]], rel=1e-5) for row in equal)


class StandIn:
    """Replaces a Spark session. Every setting takes a little longer than the one before."""

    def compare(self, settings: list[Setting], repeat: int, announce: object) -> dict[str, Timed]:
        return {setting.name: self.timed(setting, n) for n, setting in enumerate(settings, 1)}

    def timed(self, setting: Setting, n: int) -> Timed:
        median = {"tuples_per_s": 1e6 / n, "cpu_us_per_tuple": 1.0 * n, "epoch_ms_p50": 100.0 * n}
        median["results_per_tuple"] = 0.5
        times = [100 * n] * (setting.epochs - setting.warmup)
        run = {**median, "setting": setting.name, "ms_by_epoch": times, "received_per_tuple": 2.0}
        return Timed(median, [{**run, "load_before": 0.5}], Check(setting.name, 1, 1))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", TIMED)
def test_figures_of_whole_queries(name: str, tmp_path: Path) -> None:
    run, figure = Run(0.01, 1, 1, lambda text: None, StandIn()), papers.figure(name)
    found = drawing.write(name, run, figure.measure(run), 61.4, tmp_path)
    assert found["seconds"] == 61
    assert found["checks"]
    assert write_value(found["verdict"]["ratio"]) in found["verdict"]["text"]
    text = (tmp_path / f"{name}.md").read_text()
    assert sentence(found) in text
    shown = [row for row in found["rows"] if figure.is_in_table(row)]
    assert len([line for line in text.splitlines() if line.startswith("| ")]) == len(shown) + 1 > 2
    assert "| -" not in text


@pytest.mark.parametrize("name", ALL)
def test_the_page_says_what_the_committed_numbers_say(name: str) -> None:
    folder = drawing.RESULTS / ALL[name]
    found = json.loads((folder / f"{name}.json").read_text())
    assert sentence(found) in (folder / "README.md").read_text()
    assert (folder / f"{name}.md").read_text().strip() in (folder / "README.md").read_text()
    assert write_value(found["verdict"]["ratio"]) in found["verdict"]["text"]
    assert found["checks"]
    assert all(check["is_equal"] for check in found["checks"])
    assert (folder / f"{name}.png").stat().st_size < 60_000


def test_the_page_of_all_figures_is_made_of_the_committed_numbers(tmp_path: Path) -> None:
    committed = (drawing.RESULTS / "README.md").read_text()
    shutil.copytree(drawing.RESULTS, tmp_path, dirs_exist_ok=True)
    drawing.write_index(tmp_path)
    assert (tmp_path / "README.md").read_text() == committed
    for name, paper in ALL.items():
        assert f"({paper}/{name}.md)" in committed


def test_the_page_of_all_figures_says_how_long_they_took() -> None:
    found = [{"seconds": 90, "machine": {"commit": name}} for name in "aab"]
    assert describe_time(found[:1]) == "They are of 1 commit, and their measurement took 2 minutes."
    assert describe_time(found) == "They are of 2 commits, and their measurement took 4 minutes."
    assert describe_time([*found, {"machine": {"commit": "c"}}]) == "They are of 3 commits."


@pytest.mark.slow
def test_a_figure_of_this_commit_is_not_measured_again(folder: Path) -> None:
    name, commit = QUICK[0], machine.read_commit()
    assert drawing.is_measured(folder, name) is (commit is not None)
    assert not drawing.is_measured(folder, "missing")
    found = json.loads((folder / f"{name}.json").read_text())
    found["machine"]["commit"] = "another"
    (folder / f"{name}-old.json").write_text(json.dumps(found))
    assert not drawing.is_measured(folder, f"{name}-old")


@pytest.mark.parametrize("paper", papers.PAPERS)
def test_every_committed_figure_can_be_measured(paper: str) -> None:
    committed = {path.stem for path in (drawing.RESULTS / paper).glob("*.json")}
    assert committed == set(papers.names(paper))
    assert all(papers.is_known(name) for name in committed)


def test_a_wrong_count_is_an_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Query, "expected", -1)
    assert main(["bandwidth-by-rate", "--scale", "0.01", "--folder", str(tmp_path)]) == 1
    assert "counts WRONG" in (tmp_path / "bistream" / "bandwidth-by-rate.md").read_text()


def test_a_small_run_does_not_replace_the_committed_figures() -> None:
    with pytest.raises(SystemExit):
        main(["psp", "--quick"])
