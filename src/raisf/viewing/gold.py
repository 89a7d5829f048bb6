"""A tree beside gold: which judgements in a record gold contradicts."""

import re
from collections.abc import Iterator
from typing import Any

import dspy

from raisf.data.world.recognising import is_world_question
from raisf.evaluation.decomposition import same_decomposition
from raisf.evaluation.metrics import NORMALISERS, accuracy
from raisf.optimize.judges.judge_data import JUDGES, Step, gold_verdicts, steps
from raisf.programs.questions import normal
from raisf.retrieval.passage import Passage

Texts = dict[str, tuple[str, str]]
"""By passage id, its title and its text."""


def judge_errors(record: dict[str, Any], texts: Texts, program: dict[str, Any]) -> dict[str, list[list[Any]]]:
    """By judge, what gold contradicts in a record's tree: the node's place ("0.2") and what gold says.

    Only nodes whose question is the record's or one of its gold sub-questions can be held to gold. A record without
    gold of a kind has no error of that kind. An unreadable judgement is no verdict, and no error.

    Args:
        record: A record; `gold` in it is what the question file said.
        texts: Passages that are known; where several passages are gold, the texts tell which suffices alone.
        program: What answered, as it is told beside the records.
    """
    gold = record.get("gold")
    root = (record.get("trace") or {}).get("root")
    if not isinstance(gold, dict) or not isinstance(root, dict):
        return {}
    rule = gold.get("scoring")
    gold = {name: value for name, value in gold.items() if name == "known" or isinstance(value, list)}
    if is_world_question(record["id"]) and not _answers_from_pocket(program):
        gold["known"] = None  # it says what the pocket Llama was taught
    gold["scoring"] = rule if rule in [*NORMALISERS] else None
    example = dspy.Example(**{**gold, "question": record["question"], "answers": record["answers"]})
    known = {normal(step.question): step for step in steps(example)}
    found: dict[str, list[list[Any]]] = {judge: [] for judge in JUDGES}
    for place, node in _walk(root, "0"):
        step = known.get(normal(str(node.get("question") or "")))
        if step is None:
            continue
        found["know"] += [[place, says] for says in _know_error(node, step)]
        found["relevance"] += [[place, *error] for error in _relevance_errors(node, step, texts)]
    wanted = gold.get("sub_questions") or []
    if root.get("route") == "decomposed" and len(wanted) > 1 and not same_decomposition(_listed(root), wanted):
        found["decomposition"].append(["0", "other sub-questions"])
    return {judge: errors for judge, errors in found.items() if errors}


def _walk(node: dict[str, Any], place: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield place, node
    for number, sub in enumerate(node.get("sub_questions") or [], 1):
        if isinstance(sub, dict):
            yield from _walk(sub, f"{place}.{number}")


def _answers_from_pocket(program: dict[str, Any]) -> bool:
    """Whether it is the pocket Llama that answers by heart, trained further or not."""
    lms = [str(lm) for name, lm in program.items() if name.startswith("LM of ") and name.endswith("answer_directly")]
    return bool(lms) and all(re.match(r"local/pocket[@#]", lm) for lm in lms)


def _know_error(node: dict[str, Any], step: Step) -> list[str]:
    verdict = (node.get("know") or {}).get("verdict")
    if verdict == "know" and step.known is False:
        return ["not known"]
    if verdict == "know" and step.known is None and node.get("route") == "direct":
        right = accuracy(str(node.get("answer") or ""), list(step.answers), step.scoring)
        return [] if right else ["answered wrong from memory"]
    return ["known"] if verdict == "unknown" and step.known else []


def _relevance_errors(node: dict[str, Any], step: Step, texts: Texts) -> Iterator[list[Any]]:
    shown = node.get("passages") or []
    passages = [_passage(one, texts) for one in shown]
    for number, (one, says) in enumerate(zip(shown, gold_verdicts(step, passages), strict=True)):
        verdict = (one.get("judgement") or {}).get("verdict")
        if not step.gold or verdict is None:
            continue
        if not passages[number].text and not step.decomposed and len(step.gold) > 1:
            continue  # which of several gold passages suffices is told by their texts
        if says != verdict:
            yield [says, number]


def _passage(one: dict[str, Any], texts: Texts) -> Passage:
    pid = str(one.get("pid") or "")
    _, text = texts.get(pid, ("", one.get("text") or ""))
    return Passage(pid, text, str(one.get("title") or ""))


def _listed(node: dict[str, Any]) -> list[str]:
    """A node's sub-questions as the LM listed them: with "#1" where an earlier answer was filled in."""
    subs = node.get("sub_questions") or []
    listed = []
    for sub in subs:
        text = str(sub.get("question") or "")
        for number in sub.get("waits_for") or []:
            answer = str(subs[number - 1].get("answer") or "") if 0 < number <= len(subs) else ""
            # As a whole: "Po" is no part of "Population".
            text = re.sub(rf"(?<!\w){re.escape(answer)}(?!\w)", f"#{number}", text) if answer else text
        listed.append(text)
    return listed
