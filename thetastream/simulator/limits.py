"""Finds the resource of a cluster that limits a join of 1 to 1,000 units, and the rate at which it is fully
used.

    use(resource, rate) = what the resource does in an epoch / what it can do in an epoch
    limit(resource)     = the rate at which use(resource, rate) = 1

The resource with the lowest limit is the first that is fully used. One unit has one core and one shuffle
partition.

The constants of the cost model, ``PARTITION_S`` and ``FIXED_S`` were measured on one machine with 2 cores.
The others are assumptions about a cluster. ``Cluster`` holds them, so that each of them may be replaced. No
run on several machines has checked the sum. ``python -m bench executors`` compares it with executors of one
machine, which need about twice the CPU time (docs/internals/cost-model.md).
"""

from dataclasses import dataclass
from typing import NamedTuple

from thetastream.models.base import Model
from thetastream.plan.choose import list_variants
from thetastream.plan.cost import SEND_BYTE_S, estimate, estimate_unit_work
from thetastream.simulator.setting import Setting

PARTITION_S = 0.2
"""Seconds of a core that each shuffle partition costs per epoch: state commit and calls of Python. Measured:
200 partitions take 20 s on 2 cores."""
FIXED_S = 0.06
"""Seconds per epoch in which the driver writes offsets and commits. Measured."""
NOMINAL_RATE = 100_000.0
"""Tuples per second at which variants of a model are compared."""
MOST_VARIANTS, MOST_STEPS = 8, 50
"""Variants of a size that are compared, those in the middle; and steps towards a limit."""


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
    task_s: float = 0.005
    """Seconds for which the driver is busy with each Spark task."""
    block_s: float = 100e-6
    """Seconds that each block costs, whatever its size, at its sender and at its receiver together."""


class Resource(NamedTuple):
    """A resource of a cluster."""

    name: str
    advice: str
    """What to change if this resource is the first that is fully used."""


CORES = Resource("cores", "route by content (an equality and subgroups), or offer fewer candidates")
NETWORK = Resource("network", "route by content (an equality and subgroups), or send fewer columns")
MEMORY = Resource("memory", "add units, or make the window shorter")
CHECKPOINT = Resource("checkpoint", "use a faster store for the checkpoint, or send fewer columns")
DRIVER = Resource("driver", "make epochs longer, or let fewer units do more")
RESOURCES = (CORES, NETWORK, MEMORY, CHECKPOINT, DRIVER)


def compute_uses(model: Model, setting: Setting, cluster: Cluster, rate: float) -> dict[Resource, float]:
    """Compute the share of each resource that a join uses at a rate of tuples per second of both streams."""
    work = setting.build_workload(rate)
    found, n_units = estimate(model, work, model.n_units), model.n_units
    machines = max(1.0, n_units / cluster.cores_per_machine)
    # A core works for its unit and packs its share of the blocks. The router tasks of both streams send
    # nearly every unit a block each.
    packing = found.sent_bytes_per_s * SEND_BYTE_S / n_units
    fixed_s = PARTITION_S + 2 * n_units * cluster.block_s
    # Blocks that stay on their machine do not cross the network.
    received = found.sent_bytes_per_s / machines * (1 - 1 / machines)
    written = found.memory_bytes / setting.span_s / machines
    # Router tasks of both streams, and one task for each partition.
    driver_s = FIXED_S + 3 * n_units * cluster.task_s
    return {
        CORES: float(estimate_unit_work(model, work).max()) + packing + fixed_s / cluster.epoch_s,
        NETWORK: received / cluster.network_bytes_s,
        MEMORY: found.mlv_bytes / cluster.memory_per_core,
        CHECKPOINT: written / cluster.checkpoint_bytes_s,
        DRIVER: driver_s / cluster.epoch_s,
    }


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
        return Limit(n_units, model, 0.0, resource, idle)
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
    return Limit(n_units, model, rate, resource, uses)
