"""How good an ensemble is, and how large it has to be: theory, diagnostics, sizing, planning."""
