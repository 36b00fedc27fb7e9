"""Speed and memory, measured against the machine's own rates: `make bench`."""
