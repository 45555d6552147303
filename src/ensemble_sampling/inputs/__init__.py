"""What people hand in, as numbers with names."""
