"""The decision service: bandits behind HTTP, served by several processes."""
