"""Training ColBERT checkpoints, and the query side of dense indexes."""
