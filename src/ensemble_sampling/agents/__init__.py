"""Rules for acting on a posterior."""
