"""Every Python snippet of README and docs runs, and prints what the text block behind it shows."""

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES_WITH_CODE = [
    page for page in PAGES if any(language == "python" for language, _ in FENCE.findall(page.read_text()))
]
QUICKSTART = ROOT / "examples" / "quickstart.py"


def normalise(output):
    return "\n".join(line.rstrip() for line in output.strip().splitlines())


def run(snippet, names, where):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(snippet, where, "exec"), names)
    return printed.getvalue()


@pytest.mark.snippets
@pytest.mark.parametrize("page", PAGES_WITH_CODE, ids=lambda page: str(page.relative_to(ROOT)))
def test_snippets_run(page, spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__docs__"}
    fences = FENCE.findall(page.read_text())
    for number, (language, text) in enumerate(fences):
        if language != "python":
            continue
        printed = run(text, names, f"{page.name}, snippet {number}")
        if number + 1 < len(fences) and fences[number + 1][0] == "text":
            assert normalise(printed) == normalise(fences[number + 1][1])


def test_the_readme_has_figures_of_the_page_on_performance():
    engines = re.compile(
        r"^\| (\w[\w' ]*?)(?: [\d.]+)? \| ([\d,]{6,})(?: \(.*?\))? \| ([\d,]{6,})(?: \(.*?\))? \|", re.M
    )
    shown = engines.findall((ROOT / "README.md").read_text())
    measured = engines.findall((ROOT / "docs/reference/performance.md").read_text())
    assert len(shown) == 6
    assert set(shown) <= set(measured)


def test_the_guide_is_short_enough_for_the_first_week():
    assert sum(len(page.read_text().split()) for page in (ROOT / "docs/guide").glob("*.md")) <= 20_000


def test_readme_shows_the_quickstart():
    source = QUICKSTART.read_text()
    assert source[source.index("import") :] in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_of_the_package_that_a_page_names_exist(page):
    for path in re.findall(r"`(thetastream/[\w/.]+)`", page.read_text()):
        assert (ROOT / path).exists(), path
