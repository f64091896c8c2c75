"""The harness makes data, runs engines, measures and reports. ``bench.papers`` has the figures of papers."""
