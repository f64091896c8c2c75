"""The harness: data, engines, measuring, reports; ``bench.papers`` says what a paper's figure is."""
