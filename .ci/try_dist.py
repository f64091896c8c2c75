"""Install a built wheel into a clean environment, and run what a new user runs first.

    python .ci/try_dist.py WHEEL FOLDER [PIP OPTION ...]

The folder becomes an environment with nothing but the wheel and what it needs. Commands run in another
folder and without the variables of this program, so nothing of the repository is found.
"""

import os
import subprocess
import sys
import venv
from pathlib import Path

TRY = """
import sys, thetastream as th
assert th.__file__.startswith(sys.prefix), th.__file__
spark = th.local_session(2)
rows = spark.range(100).selectExpr("id", "timestamp_seconds(id) AS ts")
print(th.join({"a": rows, "b": rows}, on="a.id < b.id", within="5 seconds").count(), "pairs")
"""


def main(wheel: str, folder: str, *options: str) -> None:
    """Install the wheel, and run the commands."""
    place = Path(folder).absolute()
    venv.create(place, with_pip=True, clear=True)
    python, home = str(place / "bin" / "python"), place / "home"
    home.mkdir()
    kept = ("PATH", "HOME", "JAVA_HOME", "LANG", "TMPDIR")
    environment = {name: os.environ[name] for name in kept if name in os.environ}

    def run(*command: str) -> str:
        print("$", *(word if "\n" not in word else "..." for word in command), flush=True)
        done = subprocess.run(
            command, cwd=home, env=environment, text=True, stdout=subprocess.PIPE, check=True
        )
        print(done.stdout, end="", flush=True)
        return done.stdout

    install = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *options]
    run(*install, str(Path(wheel).absolute()))
    command = str(place / "bin" / "thetastream")
    run(command, "init", "example")
    run(command, "check", "example/job.toml")
    assert "total:" in run(command, "run", "example/job.toml", "--finish")
    assert "485 pairs" in run(python, "-c", TRY)


if __name__ == "__main__":
    main(*sys.argv[1:])
