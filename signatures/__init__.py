"""What each LM call takes and gives. A signature's docstring is the instruction that the LM reads."""
