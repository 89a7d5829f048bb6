"""Results shown in the terminal, as CSV and as a page."""
