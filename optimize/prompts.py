"""A program's prompts as plain values: the instructions and demonstrations of each predictor."""

from collections.abc import Mapping
from typing import Any

import dspy

from raisf.lm.adapter import CompactAdapter
from raisf.lm.chat import without_attachments
from raisf.lm.connect import adapter_for
from raisf.optimize.adapters import trained_folder
from raisf.optimize.copying import copy_of
from raisf.optimize.runs import plain

Prompts = Mapping[str, Mapping[str, Any]]
"""By predictor's name: "instructions", a text, and "demos", a list of fields with their values."""


def prompts_of(program: dspy.Module) -> dict[str, dict[str, Any]]:
    """The prompts of a program, as plain values (`raisf.optimize.runs.plain`)."""
    prompts = {}
    for name, predictor in program.named_predictors():
        signature: Any = predictor.signature
        demos = [plain(dict(demo)) for demo in predictor.demos]
        prompts[name] = {"instructions": signature.instructions, "demos": demos}
    return prompts


def with_prompts(program: dspy.Module, prompts: Prompts) -> dspy.Module:
    """A copy of the program with these prompts and its own LMs."""
    copy: Any = copy_of(program)
    for name, predictor in copy.named_predictors():
        told = prompts[name]["instructions"]
        if told != predictor.signature.instructions:  # a class that is made so cannot be pickled
            predictor.signature = predictor.signature.with_instructions(told)
        predictor.demos = [dspy.Example(demo) for demo in prompts[name]["demos"]]
    return copy


def with_instructions(program: dspy.Module, instructions: Mapping[str, str]) -> dspy.Module:
    """A copy of the program with other instructions for the predictors named, and its own LMs and demonstrations."""
    copy: Any = copy_of(program)
    for name, predictor in copy.named_predictors():
        if name in instructions:
            predictor.signature = predictor.signature.with_instructions(instructions[name])
    return copy


def instructed(program: dspy.Module) -> list[str]:
    """The names of the predictors whose LM reads instructions and was not trained on those that it has."""
    return [name for name, predictor in program.named_predictors() if _reads(predictor.lm or dspy.settings.lm)]


def _reads(lm: Any) -> bool:
    adapter = adapter_for(lm)
    return trained_folder(lm) is None and not (isinstance(adapter, CompactAdapter) and not adapter.instructions)


def writing_adapter(lm: dspy.BaseLM) -> dspy.Adapter:
    """How an LM is asked to write instructions: in its own format, but for one that only completes text."""
    adapter = adapter_for(lm)
    return without_attachments(dspy.ChatAdapter() if isinstance(adapter, CompactAdapter) else adapter)
