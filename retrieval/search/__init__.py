"""Searching vectors exactly or approximately, and filters on passages."""
