"""What a judge is trained on, and how good it is alone."""
