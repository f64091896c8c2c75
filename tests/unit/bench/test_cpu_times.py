"""The CPU time of a Spark query by its processes, and the constants that a calibration computes from it."""

import subprocess
import sys
from typing import Any, NamedTuple

import pytest

from bench.core import cpu_times, executors
from bench.core.calibrate import CELLS, NO_PARTNER, Cell, Found, compute_constants
from bench.core.cpu_times import CpuTimes, measure_cpu
from thetastream.families.pairs.cost import SEND_BYTE_S
from thetastream.index.base import CANDIDATE_S
from thetastream.simulator import limits

BURN = "import time\nwhile time.process_time() < 0.3: pass"


class Times(NamedTuple):
    user: float
    system: float
    children_user: float
    children_system: float


class Process:
    """A process of a fixed tree."""

    def __init__(self, pid: int, parent: int, name: str, user: float, ended: float = 0.0) -> None:
        self.pid, self._parent, self._name, self._user, self._ended = pid, parent, name, user, ended

    def name(self) -> str:
        return self._name

    def ppid(self) -> int:
        return self._parent

    def cpu_times(self) -> Times:
        return Times(self._user, 0.0, self._ended, 0.0)


def test_processes_count_for_the_driver_or_for_executors(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = [
        Process(1, 0, "python", 1),
        Process(2, 1, "java", 20, ended=3),
        Process(3, 2, "python", 300),
        Process(4, 2, "java", 4_000, ended=50),
        Process(5, 4, "python", 60_000),
        Process(6, 5, "python", 700_000),
    ]
    monkeypatch.setattr(cpu_times, "process_tree", lambda: tree)
    monkeypatch.setattr(cpu_times, "read_compilers", {2: 7.0, 4: 900.0}.__getitem__)
    found = measure_cpu()
    assert found == CpuTimes(1 + 20 + 3 + 300 - 7, 4_000 + 50 + 60_000 + 700_000 - 900, 907, 53)
    assert found.living_s == 1 + 20 + 300 + 4_000 + 60_000 + 700_000
    assert found.warm_s == found.driver_s + found.executors_s


def test_a_process_that_has_ended_still_counts() -> None:
    before = measure_cpu()
    subprocess.run([sys.executable, "-c", BURN], check=True)
    spent = measure_cpu().since(before)
    assert spent.ended_s >= 0.25
    assert spent.driver_s >= spent.ended_s - 1e-9  # Sums of ticks have errors of rounding.
    # The JVM of other tests may be alive, and compile.
    assert spent.executors_s == 0


def test_the_calibration_finds_the_constants_that_costs_are_made_of() -> None:
    known = {
        "EPOCH_S": 0.5,
        "TASK_S": 0.01,
        "ROUTER_TASK_S": 0.04,
        "PARTITION_S": 0.3,
        "EXECUTOR_S": 0.1,
        "INPUT_S": 2e-6,
        "RESULT_BYTE_S": 3e-8,
    }

    def make(cell: Cell, results: float) -> Found:
        routers, partitions = 2 * cell.files, 0 if cell.routes_only else cell.units
        driver_s = known["EPOCH_S"] + known["TASK_S"] * (routers + partitions)
        executors_s = known["ROUTER_TASK_S"] * routers + known["PARTITION_S"] * partitions
        executors_s += known["EXECUTOR_S"] * (cell.executors - 1)
        # A tuple of 16 bytes is packed for one unit that stores it, and for half of the units.
        tuple_s = known["INPUT_S"] + (1 + cell.units / 2) * 16 * SEND_BYTE_S
        executors_s += 2 * cell.size * tuple_s + results * (32 * known["RESULT_BYTE_S"] + CANDIDATE_S)
        return Found(CpuTimes(driver_s, executors_s, 99.0, 0.0), results, 16.0, True)

    # Both cells of the same size do the same besides results.
    found = {cell.name: make(cell, 1e6 if cell.n_keys < NO_PARTNER else 0) for cell in CELLS}
    assert compute_constants(found) == pytest.approx(known, rel=1e-3)
    assert set(known) == {name for name in vars(limits) if name.endswith("_S") and name != "SEND_BYTE_S"}


def test_a_prediction_is_the_sum_of_its_parts() -> None:
    shown: dict[str, Any] = {"stored_bytes": 60.0, "sent_bytes": 24.0}
    two, four = (executors.predict(shown, n, n, 20_000) for n in (2, 4))
    parts = [
        f"predicted_{part.name}_s"
        for part in (limits.INPUT, limits.EXCHANGE, limits.UNITS, limits.RESULTS, limits.FIXED)
    ]
    for row in (two, four):
        assert row["predicted_executors_s"] == pytest.approx(sum(row[name] for name in parts))
        assert row["predicted_cpu_s"] == row["predicted_driver_s"] + row["predicted_executors_s"]
    # Two more units cost two partitions, two tasks, and a second unit that each tuple probes.
    assert four["predicted_driver_s"] - two["predicted_driver_s"] == pytest.approx(2 * limits.TASK_S)
    assert four["predicted_input_s"] == pytest.approx(two["predicted_input_s"])
    assert four["predicted_results_s"] == pytest.approx(two["predicted_results_s"])
    assert four["predicted_exchange_s"] == pytest.approx(1.5 * two["predicted_exchange_s"])
    assert four["predicted_units_s"] > two["predicted_units_s"]


def test_each_executor_after_the_first_costs_the_same() -> None:
    shown: dict[str, Any] = {"stored_bytes": 60.0, "sent_bytes": 24.0}
    one, two, four = (executors.predict(shown, n, 4, 20_000)["predicted_fixed_s"] for n in (1, 2, 4))
    assert two - one == pytest.approx(limits.EXECUTOR_S)
    assert four - one == pytest.approx(3 * limits.EXECUTOR_S)


def test_an_error_is_within_the_target_or_not() -> None:
    row = {"predicted_cpu_s": 0.85, "cpu_s": 1.0, "is_correct": True}
    found = executors.summarize(1, 100, [row])
    assert (found["units"], found["cpu_error"], found["is_within"]) == (2, "-15%", True)
    assert not executors.summarize(1, 100, [{**row, "predicted_cpu_s": 1.25}])["is_within"]
