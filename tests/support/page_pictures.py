"""Draws the pictures of the page in docs/running/service.md from what ``make demo`` has left in out/demo.

python -m tests.support.page_pictures [FOLDER]
"""

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.browser import open_browser
from tests.support.service import run_service
from thetastream.runtime.observe.epoch_lines import MetricLines
from thetastream.stores import ParquetStore

PAGES = Path(__file__).parents[2] / "docs" / "running"
QUESTION = "SELECT month(a_departed) AS month, count(*) AS pairs FROM results GROUP BY 1 ORDER BY 1"


def main(folder: Path) -> None:
    """Show the query of the demo as if it still ran, and write pictures of both cards."""
    with TemporaryDirectory() as place:
        lines = MetricLines(Path(place, "metrics.jsonl"))
        for line in (folder / "metrics.jsonl").read_text().splitlines():
            entry = json.loads(line)
            if "ended" not in entry:
                lines.write(entry.pop("query"), {name: entry[name] for name in entry if name != "host"})
        store, files = ParquetStore(str(folder / "pairs")), [Path(place, "metrics.jsonl")]
        with run_service({"pairs": store}, metrics=files) as address, open_browser() as browser:
            page = browser.new_page(viewport={"width": 1100, "height": 900})
            page.set_default_timeout(60_000)
            page.goto(address)
            page.locator(".dot").first.wait_for()
            page.get_by_label("Query flights").screenshot(path=PAGES / "page-query.png")
            page.get_by_label("Question to pairs in SQL").fill(QUESTION)
            # The first question starts the process that answers, which takes some seconds.
            for _ in range(2):
                with page.expect_response("**/query"):
                    page.keyboard.press("Control+Enter")
                page.get_by_role("status").filter(has_text="rows in").wait_for()
            page.get_by_label("Store pairs").screenshot(path=PAGES / "page-store.png")
        lines.close()


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "out/demo"))
