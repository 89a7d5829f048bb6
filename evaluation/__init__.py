"""Evaluation: the field's measures with intervals, and a runner that writes one record a question and resumes."""
