"""The tables and figures of the papers, by name."""
