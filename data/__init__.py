"""Data: the closed world, the public data sets, the almanac and question files."""
