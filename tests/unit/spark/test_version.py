"""A PySpark that is too old is refused when the package is imported."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_an_old_pyspark_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").write_text('__version__ = "4.1.2"')
    program = f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(ROOT)!r}]; import thetastream"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "ImportError: thetastream needs PySpark 4.2 or later, and this Python has 4.1.2: " in run.stderr


def test_a_zip_of_the_folder_knows_its_version(tmp_path: Path) -> None:
    archive = shutil.make_archive(str(tmp_path / "sent"), "zip", ROOT, "thetastream")
    # The metadata of this environment must not be found.
    program = f"""
import importlib.metadata, sys
sys.path.insert(0, {archive!r})
before = importlib.metadata.version
def version(name):
    if name == "thetastream":
        raise importlib.metadata.PackageNotFoundError(name)
    return before(name)
importlib.metadata.version = version
import thetastream
print(thetastream.__file__.startswith({archive!r}), thetastream.__version__)
"""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment
    )
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert run.stdout.split() == ["True", declared], run.stderr
