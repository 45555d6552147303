"""One idea of what is plausible per file: exact, an ensemble, a single point."""
