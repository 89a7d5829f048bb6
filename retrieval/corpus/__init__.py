"""Documents become passages: finding, reading and splitting files."""
