"""Small runs of the papers' figures, for tests."""

from pathlib import Path
from typing import Any

from bench import papers
from bench.core import drawing
from bench.core.figure import Run
from bench.core.page import sentence


def write_small(name: str, scale: float, folder: Path) -> dict[str, Any]:
    """Measure a figure without Spark at a small scale, check its files, and return its numbers."""
    run, figure = Run(scale, 1, 1, lambda text: None, clock=None), papers.figure(name)  # type: ignore[arg-type]
    found: dict[str, Any] = drawing.write(name, run, figure.measure(run), 1.0, folder)
    assert found["checks"]
    assert all(check["is_equal"] for check in found["checks"])
    assert any(check["expected"] for check in found["checks"])
    assert f"{found['verdict']['ratio']:.2f}" in found["verdict"]["text"]
    text = (folder / f"{name}.md").read_text()
    assert sentence(found) in text
    assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    shown = [row for row in found["rows"] if figure.is_in_table(row)]
    assert len([line for line in text.splitlines() if line.startswith("| ")]) == len(shown) + 1 > 2
    return found
