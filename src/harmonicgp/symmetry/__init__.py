"""Which symmetry a model takes: candidates, their evidence, the search and its result."""
