"""A measuring process, ``python -m bench.core.worker TASK OUTPUT``, runs one engine once."""

import json
import pickle
import sys
from importlib import import_module
from pathlib import Path

from bench.core import rate, spark
from bench.core.engines import MODULES, STREAMING

if __name__ == "__main__":
    task = pickle.loads(Path(sys.argv[1]).read_bytes())
    engine = import_module(MODULES[task.engine])
    measure = rate.measure if task.rate else spark.measure
    result = measure(task, engine.prepare(task)) if task.engine in STREAMING else engine.run(task)
    Path(sys.argv[2]).write_text(json.dumps(result))
