"""The paper's experiments, one script each: `python -m experiments.NAME --help`."""
