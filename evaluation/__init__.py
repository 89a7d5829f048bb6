"""Evaluation: the field's measures with intervals, and a runner that writes one record a question and resumes."""

QUESTIONS, QUESTIONS_REMOTE = 32, 8
"""Asked at a time: an engine in the process batches their calls; of an endpoint the limit of calls is what counts."""
