"""A model in this process: the engine that batches requests, what it computes, and its `dspy.LM`."""
