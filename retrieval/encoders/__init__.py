"""Checkpoints of encoders, and the ColBERT encoder."""
