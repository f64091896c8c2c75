"""A PySpark that is too old is refused when the package is imported."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_an_old_pyspark_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").write_text('__version__ = "4.1.2"')
    program = f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(ROOT)!r}]; import thetastream"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "ImportError: thetastream needs PySpark 4.2 or later, and this Python has 4.1.2: " in run.stderr
