"""Real decisions: bandit, offers, ledger, snapshots, summaries."""
