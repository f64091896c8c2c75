"""The CPU time of an epoch, by its parts.

    core of a unit   INPUT + EXCHANGE + UNITS + RESULTS + FIXED        seconds per second
    driver           EPOCH_S + tasks * TASK_S                          seconds per epoch

``python -m bench calibrate`` measured the constants of this file on an AMD EPYC with 2 cores
(docs/internals/cost-model.md). No run with which the simulator is compared (``python -m bench executors``)
was used for them. UNITS and EXCHANGE have the constants of the planner (``thetastream.families.pairs.cost``).
"""

from dataclasses import dataclass
from typing import NamedTuple

from thetastream.families.pairs.cost import SEND_BYTE_S, estimate, estimate_unit_work
from thetastream.models.base import Model
from thetastream.simulator.scaling import Setting

EPOCH_S = 0.31
"""Seconds of the driver for each epoch: it lists files, plans the query, and writes offsets and commits."""
TASK_S = 0.006
"""Seconds of the driver for each Spark task."""
ROUTER_TASK_S = 0.03
"""Seconds of an executor for each task of a router, besides its tuples: open a file, call Python."""
PARTITION_S = 0.12
"""Seconds of an executor for each shuffle partition: call Python, load state and commit it."""
EXECUTOR_S = 0.075
"""Seconds of each executor after the first one, whatever it does. A machine has one executor."""
INPUT_S = 0.2e-6
"""Seconds to read a tuple from Parquet, compute its keys in Catalyst, and hand it to the router."""
RESULT_BYTE_S = 5.8e-9
"""Seconds for each byte of a result: gather it in a unit, hand it to Spark, and bring it to a sink that drops
it. A result has the columns of both streams."""


class CorePart(NamedTuple):
    """A part of the CPU time of a core."""

    name: str
    advice: str
    """What to change if this part is the largest one of cores that are fully used."""


INPUT = CorePart("input", "send fewer tuples and columns into the join; filter streams by their own columns")
EXCHANGE = CorePart("exchange", "route by content (an equality and subgroups), or send fewer columns")
UNITS = CorePart(
    "units",
    "route by content (an equality and subgroups), and then add units; or offer fewer candidates",
)
RESULTS = CorePart("results", "let units fold results into groups (th.aggregate), or select fewer results")
FIXED = CorePart("fixed", "make epochs longer, or let fewer units do more")
PARTS = (INPUT, EXCHANGE, UNITS, RESULTS, FIXED)


@dataclass(frozen=True)
class Cluster:
    """What the resources of a cluster can do."""

    epoch_s: float = 10.0
    """Seconds of an epoch."""
    cores_per_machine: int = 8
    memory_per_core: float = 4 * 2**30
    network_bytes_s: float = 1.25e9
    """Bytes per second that a machine can receive: 10 Gbit/s."""
    checkpoint_bytes_s: float = 0.25e9
    """Bytes per second that a machine can write to the checkpoint."""
    block_s: float = 100e-6
    """Seconds that each block costs, whatever its size, at its sender and at its receiver together."""
    router_tasks: int | None = None
    """Tasks that route the tuples of a stream in an epoch. Without a number, it is one for each unit."""

    def count_machines(self, n_units: int) -> float:
        """Count the machines of the units."""
        return max(1.0, n_units / self.cores_per_machine)

    def count_router_tasks(self, n_units: int) -> int:
        """Count the tasks that route the tuples of both streams in an epoch."""
        return 2 * (n_units if self.router_tasks is None else self.router_tasks)


def compute_core_parts(
    model: Model, setting: Setting, cluster: Cluster, rate: float
) -> dict[CorePart, float]:
    """Compute the share of its time that the core of the busiest unit spends on each part.

    ``rate`` is the number of tuples per second of both streams. Each core packs its share of the blocks.
    """
    work, n_units = setting.build_workload(rate), model.n_units
    sent_bytes = estimate(model, work, n_units).sent_bytes_per_s
    routers = cluster.count_router_tasks(n_units)
    router_s, executors_s = routers * ROUTER_TASK_S, (cluster.count_machines(n_units) - 1) * EXECUTOR_S
    fixed_s = PARTITION_S + (router_s + executors_s) / n_units + routers * cluster.block_s
    return {
        INPUT: rate * INPUT_S / n_units,
        EXCHANGE: sent_bytes * SEND_BYTE_S / n_units,
        UNITS: float(estimate_unit_work(model, work).max()),
        RESULTS: rate * setting.results * 2 * setting.sent_bytes * RESULT_BYTE_S / n_units,
        FIXED: fixed_s / cluster.epoch_s,
    }


def compute_driver_s(n_units: int, cluster: Cluster) -> float:
    """Compute the seconds for which the driver is busy in an epoch."""
    return EPOCH_S + (cluster.count_router_tasks(n_units) + n_units) * TASK_S
