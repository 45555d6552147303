"""Worlds to decide in."""
