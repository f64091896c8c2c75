"""Finds the resource of a cluster that limits a join of 1 to 1,000 units, and the rate at which it is fully
used.

    use(resource, rate) = what the resource does in an epoch / what it can do in an epoch
    limit(resource)     = the rate at which use(resource, rate) = 1
    core of a unit      = INPUT + EXCHANGE + UNITS + RESULTS + FIXED        seconds per second
    driver              = EPOCH_S + tasks * TASK_S                          seconds per epoch

The resource with the lowest limit is the first that is fully used. One unit has one core and one shuffle
partition. ``python -m bench calibrate`` measured the constants of cores and driver on an AMD EPYC with 2
cores, and ``python -m bench executors`` compares them with executors of one machine
(docs/internals/cost-model.md). UNITS and EXCHANGE have the constants of the planner
(``thetastream.families.pairs.cost``). The network, the checkpoint and the memory are assumptions about a
cluster. ``Cluster`` holds them, so that each of them may be replaced. No run on several machines has checked
the sum.
"""

from dataclasses import dataclass
from typing import NamedTuple

from thetastream.families.pairs.choose import list_variants
from thetastream.families.pairs.cost import SEND_BYTE_S, estimate, estimate_unit_work
from thetastream.models.base import Model
from thetastream.simulator.scaling import Setting

NOMINAL_RATE = 100_000.0
"""Tuples per second at which variants of a model are compared."""
MOST_VARIANTS, MOST_STEPS = 8, 50
"""Variants of a size that are compared, those in the middle; and steps towards a limit."""

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


class Resource(NamedTuple):
    """A resource of a cluster."""

    name: str
    advice: str = ""
    """What to change if this resource is the first that is fully used. Cores have none of their own: their
    largest part has it."""


CORES = Resource("cores")
NETWORK = Resource("network", "route by content (an equality and subgroups), or send fewer columns")
MEMORY = Resource("memory", "add units, or make the window shorter")
CHECKPOINT = Resource("checkpoint", "use a faster store for the checkpoint, or send fewer columns")
DRIVER = Resource("driver", "make epochs longer, or let fewer units do more")
RESOURCES = (CORES, NETWORK, MEMORY, CHECKPOINT, DRIVER)


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


class Limit(NamedTuple):
    """What limits a join of one size."""

    n_units: int
    model: Model
    rate: float
    """The tuples per second, both streams together, at which the first resource is fully used. It is 0 if
    the resource is fully used without tuples."""
    resource: Resource
    """This resource."""
    uses: dict[Resource, float]
    """The share of each resource that is used at this rate."""
    parts: dict[CorePart, float]
    """The share of its time that the core of the busiest unit spends on each part at this rate."""

    @property
    def part(self) -> CorePart | None:
        """The part that takes most of the time of the cores, if they are the first resource."""
        return max(self.parts, key=self.parts.__getitem__) if self.resource is CORES else None

    @property
    def binding(self) -> str:
        """The name of the resource, and of the part of cores."""
        return self.resource.name if self.part is None else f"{self.resource.name}: {self.part.name}"

    @property
    def advice(self) -> str:
        """What to change."""
        return self.resource.advice if self.part is None else self.part.advice


def find_limit(name: str, n_units: int, setting: Setting, cluster: Cluster) -> Limit | None:
    """Find the limit of the model ``name`` with a number of units, in its cheapest variant.

    Return None if the model cannot have this number of units.
    """
    work = setting.build_workload(NOMINAL_RATE)
    variants = list(list_variants(name, n_units, work))
    if len(variants) > MOST_VARIANTS:
        middle = (len(variants) - MOST_VARIANTS) // 2
        variants = variants[middle : middle + MOST_VARIANTS]
    if not variants:
        return None
    model = min(variants, key=lambda model: estimate(model, work, n_units).cost)
    # The use of a resource is nearly a straight line, so a few steps along it find where it reaches 1.
    rate, idle = NOMINAL_RATE, compute_uses(model, setting, cluster, 1e-6)
    resource = max(RESOURCES, key=idle.__getitem__)
    if idle[resource] >= 1:
        return Limit(n_units, model, 0.0, resource, idle, compute_core_parts(model, setting, cluster, 1e-6))
    for _ in range(MOST_STEPS):
        uses = compute_uses(model, setting, cluster, rate)
        limits = {
            resource: rate * (1 - idle[resource]) / (uses[resource] - idle[resource])
            for resource in RESOURCES
            if uses[resource] > idle[resource]
        }
        resource = min(limits, key=limits.__getitem__)
        if abs(uses[resource] - 1) < 1e-3:
            break
        rate = limits[resource]
    return Limit(n_units, model, rate, resource, uses, compute_core_parts(model, setting, cluster, rate))


def compute_uses(model: Model, setting: Setting, cluster: Cluster, rate: float) -> dict[Resource, float]:
    """Compute the share of each resource that a join uses at a rate of tuples per second of both streams."""
    found, n_units = estimate(model, setting.build_workload(rate), model.n_units), model.n_units
    machines = cluster.count_machines(n_units)
    # Blocks that stay on their machine do not cross the network.
    received = found.sent_bytes_per_s / machines * (1 - 1 / machines)
    written = found.memory_bytes / setting.span_s / machines
    return {
        CORES: sum(compute_core_parts(model, setting, cluster, rate).values()),
        NETWORK: received / cluster.network_bytes_s,
        MEMORY: found.mlv_bytes / cluster.memory_per_core,
        CHECKPOINT: written / cluster.checkpoint_bytes_s,
        DRIVER: compute_driver_s(n_units, cluster) / cluster.epoch_s,
    }


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
