"""What a measuring process is told: one engine, one shape, its options."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from bench.data import Shape


@dataclass(frozen=True)
class Task:
    """One run of one engine."""

    engine: str
    shape: Shape
    warmup: int
    """Epochs that fill the window, and not measured."""
    warmup_seconds: float
    """Nor are epochs before this: the JVM is still compiling."""
    epochs: int
    """Measured epochs."""
    driver_memory: str = "4g"
    rate: int = 0
    """Tuples per second of both streams together, in real time; 0: as fast as it goes."""
    seconds: int = 0
    """Measured time when there is a rate."""
    options: dict[str, Any] = field(default_factory=dict)
    """Engine options, e.g. ``{"cell": 40}``."""

    def dumps(self) -> str:
        """As JSON."""
        return json.dumps(asdict(self))

    @staticmethod
    def loads(text: str) -> "Task":
        """From JSON."""
        fields = json.loads(text)
        return Task(**{**fields, "shape": Shape(**fields["shape"])})
