"""The traces of an RA-ISF within a module, or a subclass, of the user's own, which may hand on none of them."""

import functools
from typing import Any

import dspy

from raisf.programs.ra_isf import RAISF
from raisf.programs.trace import Trace

# The setting of DSPy's, which also `dspy.Parallel` hands on, that collects a question's traces.
_TRACES = "raisf_traces"


def leave_traces(program: RAISF) -> None:
    """Let each run of the program leave its trace for `with_traces`, as long as `vars(program)` has this `_run`."""
    vars(program)["_run"] = functools.partial(_leaving, program)  # not a function: a copy's is then of the copy


def _leaving(program: RAISF, *args: Any) -> dspy.Prediction:
    prediction = type(program)._run(program, *args)
    traces: list[Trace] = dspy.settings.get(_TRACES, [])  # no settings hold in threads that a user starts
    traces.append(prediction.trace)
    return prediction


def with_traces(module: dspy.Module, **inputs: Any) -> dspy.Prediction:
    """The module's `prediction` together with the `traces` that were left on the way to it."""
    traces = list[Trace]()
    with dspy.context(**{_TRACES: traces}):
        return dspy.Prediction(prediction=module(**inputs), traces=traces)


def trace_of(run: dspy.Prediction) -> Trace | None:
    """How a run of `with_traces` came to its answer: the trace that it hands on, else the only one that was left."""
    handed = getattr(run.prediction, "trace", None)
    if isinstance(handed, Trace):
        return handed
    return run.traces[0] if len(run.traces) == 1 else None
