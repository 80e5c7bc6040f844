"""What every cluster has: clock, waiting room, control in force, holds, the ledger of decisions, and the frame of the summary."""
