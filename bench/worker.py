"""A measuring process: ``python -m bench.worker TASK OUTPUT``; one engine, one run, then it ends."""

import json
import sys
from importlib import import_module
from pathlib import Path

from bench import rate
from bench.engines import ENGINES
from bench.task import Task


def main() -> None:
    """Run the task of the first argument, write its result to the path of the second."""
    task = Task.loads(sys.argv[1])
    engine = import_module(ENGINES[task.engine])
    result = rate.measure(task, engine.prepare(task)) if task.rate else engine.run(task)
    Path(sys.argv[2]).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
