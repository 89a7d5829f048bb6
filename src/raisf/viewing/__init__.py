"""A page over the records that evaluations leave: served, or exported as one file."""
