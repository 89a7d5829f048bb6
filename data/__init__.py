"""Data: the closed world, the public data sets, question files, and the tools for files and errors of all rooms."""
