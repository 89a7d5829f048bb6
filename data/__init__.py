"""Data: the closed world, question files, and the small tools for files and errors that every room uses."""
