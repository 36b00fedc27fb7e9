"""Fields on the globe."""
