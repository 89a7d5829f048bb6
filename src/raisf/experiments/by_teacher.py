"""The agreement with GPT-4 of RA-ISF's Table 5: a teacher is asked what the judges were asked."""

import random
from collections.abc import Mapping
from typing import Any

import dspy

from raisf.evaluation.decomposition import same_decomposition
from raisf.experiments import published_results as published
from raisf.optimize.judges.agreement import Agreement
from raisf.optimize.judges.judgements import ask_each, asking
from raisf.optimize.judges.labelling import DIFFERENT, SAME
from raisf.programs.questions import listed
from raisf.reports.sections import Cell, Section
from raisf.signatures.judges import Decomposition, PassageRelevance, SelfKnowledge
from raisf.utils.sampling import up_to
from raisf.utils.text import counted

# Calls a judge.
SAMPLED = 100
_ASKED = {"know": SelfKnowledge, "relevance": PassageRelevance, "decomposition": Decomposition}
_YES = ("know", "relevant")


def agreement_with_teacher(
    teacher: Any, judged: Mapping[str, Mapping[str, list[dict[str, Any]]]], seed: int, threads: int
) -> Section:
    """What a teacher says of a sample of the judges' questions, beside what each judge and gold have.

    Args:
        teacher: The LM that is asked, as the judges were, but about itself where it is to tell what is known.
        judged: By program and judge, the rows that it was asked about, passages one by one.
        seed: Of the draw.
        threads: Calls at a time.

    Raises:
        LMError: The teacher is down.
    """
    rows: list[list[Cell]] = []
    asked = failed = answered = 0
    for judge, signature in _ASKED.items():
        verdicts = {
            label: {_key(row): row for row in of[judge] if row["readable"]}
            for label, of in judged.items()
            if judge in of
        }
        keys = sorted({key for of in verdicts.values() for key in of})
        sampled = up_to(keys, SAMPLED, random.Random(seed))
        said, errors = _said(teacher, signature, sampled, threads)
        asked, failed, answered = asked + len(sampled), failed + errors, answered + len(said)
        ours = "listed" if judge == "decomposition" else "said"
        golds = {label: {key: row["gold"] for key, row in of.items()} for label, of in verdicts.items()}
        compared = _golds(golds) | {label: {key: of[key][ours] for key in of} for label, of in verdicts.items()}
        for label, theirs in compared.items():
            if both := [key for key in said if key in theirs]:
                found = Agreement.of([_pair(said[key], theirs[key]) for key in both], [key[0] for key in both])
                kappa = None if judge == "decomposition" else found.kappa
                rows.append([f"{judge}: {label}", found.share, kappa, found.n])
    paper = ", ".join(f"{judge} {figures['GPT-4']}" for judge, figures in published.TABLE_5.items())
    unread = asked - failed - answered
    lost = [f"; {failed} failed"] * bool(failed) + [f"; {unread} gave nothing that can be read"] * bool(unread)
    text = (
        f"Judgements that {teacher.model} and the judge agree on, of up to {SAMPLED} a judge, by "
        f"{counted(asked, 'call')}{''.join(lost)}. It is asked what the judge is, about one passage at a time, and "
        "whether it knows the answer itself; of a decomposition the share that is the same up to wording, which has no "
        f"kappa. The paper's, with GPT-4: {paper}."
    )
    return Section("Agreement with the teacher", ["judge", "agreement", "kappa", "n"], rows, text)


def _golds(golds: Mapping[str, dict[tuple[str, ...], Any]]) -> dict[str, dict[tuple[str, ...], Any]]:
    """Gold, by what it is called: one, or each program's own where what its LM knows is another's."""
    merged = {key: value for of in golds.values() for key, value in of.items()}
    if all(merged[key] == value for of in golds.values() for key, value in of.items()):
        return {"gold": merged}
    return {f"gold of {label}": of for label, of in golds.items()}


def _said(
    teacher: Any, signature: Any, keys: list[tuple[str, ...]], threads: int
) -> tuple[dict[tuple[str, ...], Any], int]:
    """The teacher's verdict of each (its sub-questions), if one can be read; and how many calls failed."""
    predictor = dspy.Predict(signature)
    predictor.lm = teacher
    fields, (output,) = list(signature.input_fields), signature.output_fields
    rows = [dspy.Example(**dict(zip(fields, key, strict=True))).with_inputs(*fields) for key in keys]
    answered, failed = ask_each(asking(predictor), rows, threads, True, "asking the teacher")
    said = {tuple(row[field] for field in fields): outputs and outputs[output] for row, outputs in answered}
    read = {
        key: listed(value) if isinstance(value, list) else value in _YES
        for key, value in said.items()
        if value is not None
    }
    return read, failed


def _key(row: Mapping[str, Any]) -> tuple[str, ...]:
    """What of a row the judge was asked about."""
    return (row["question"], row["passage"]) if row.get("passage") is not None else (row["question"],)


def _pair(said: Any, ours: Any) -> tuple[str, str]:
    if isinstance(said, list):
        return SAME, SAME if same_decomposition(ours, said) else DIFFERENT
    return str(said), str(ours)
