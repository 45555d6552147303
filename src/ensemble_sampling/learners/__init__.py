"""Models that learn one observation at a time."""
