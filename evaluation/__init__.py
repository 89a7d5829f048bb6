"""Evaluation: the field's measures with intervals, and a runner that writes one record a question and resumes."""

from collections.abc import Mapping
from typing import Any

RecordsById = Mapping[str, dict[str, Any]]
"""By question id, the record that `raisf.evaluation.runner.evaluate` has written."""

QUESTIONS, QUESTIONS_REMOTE = 32, 8
"""Asked at a time: an engine in the process batches their calls; of an endpoint the limit of calls is what counts."""
