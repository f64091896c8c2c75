"""Finds the resource of a cluster that limits a join of 1 to 1,000 units, and the rate at which it is fully
used.

    use(resource, rate) = what the resource does in an epoch / what it can do in an epoch
    limit(resource)     = the rate at which use(resource, rate) = 1

The resource with the lowest limit is the first that is fully used. One unit has one core and one shuffle
partition.

The CPU time of cores and driver has measured constants (``thetastream.simulator.core_time``). ``python -m
bench executors`` compares it with executors of one machine (docs/internals/cost-model.md). The network, the
checkpoint and the memory are assumptions about a cluster. ``Cluster`` holds them, so that each of them may be
replaced. No run on several machines has checked the sum.
"""

from typing import NamedTuple

from thetastream.families.pairs.choose import list_variants
from thetastream.families.pairs.cost import estimate
from thetastream.models.base import Model
from thetastream.simulator.core_time import Cluster, CorePart, compute_core_parts, compute_driver_s
from thetastream.simulator.scaling import Setting

NOMINAL_RATE = 100_000.0
"""Tuples per second at which variants of a model are compared."""
MOST_VARIANTS, MOST_STEPS = 8, 50
"""Variants of a size that are compared, those in the middle; and steps towards a limit."""


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
