"""The operations of the API, by subject."""

from . import bandits, decisions, log, outcomes, process, shadows

OPERATIONS = (
    *decisions.OPERATIONS,
    *outcomes.OPERATIONS,
    *log.OPERATIONS,
    *bandits.OPERATIONS,
    *shadows.OPERATIONS,
    *process.OPERATIONS,
)
