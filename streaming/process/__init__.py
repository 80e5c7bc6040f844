"""What every program has: exit codes, stopping, waiting, logs, health and metrics pages."""
