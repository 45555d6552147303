"""The durable record of decisions and outcomes."""
