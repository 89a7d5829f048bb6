"""What every package stands on: the errors, files, and what reads and schedules models."""
