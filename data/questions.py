"""Question files: one form of example, read from this project's JSON Lines or from HotpotQA's two schemas."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data.errors import InputError
from data.files import read_json, read_jsonl

if TYPE_CHECKING:
    import dspy


def load_questions(path: Path | str) -> "list[dspy.Example]":
    """The questions of a file, as examples whose only input is `question`.

    Fields: id, question, answer, answers (aliases, the answer among them), kind, hops (int or None), gold_titles,
    gold_pids, sub_questions (may refer to an earlier answer as "#1"), sub_answers, known (whether the shipped pocket
    Llama was taught every fact; None where nobody can say).

    Args:
        path: A .jsonl file with at least `question` and `answer` or `answers` a line (what `raisf world` writes, or
            HotpotQA as the hub has it), or HotpotQA's original .json.

    Raises:
        InputError: The file is missing, empty or broken, an id appears twice, or a question or answer is missing;
            the message names the place.
    """
    path = Path(path)
    rows = read_jsonl(path) if path.suffix != ".json" else _json_rows(path)
    examples, seen = [], {}
    for number, row in enumerate(rows, start=1):
        try:
            example = _example(row, number)
        except ValueError as error:
            raise InputError(f"{path}, question {number}: {error}") from error
        if example.id in seen:
            raise InputError(
                f"{path}: questions {seen[example.id]} and {number} share the id {example.id!r}; give each its own"
            )
        seen[example.id] = number
        examples.append(example)
    if not examples:
        raise InputError(f"{path} holds no questions; expected a JSON object a line with question and answer")
    return examples


def hotpot_paragraphs(path: Path | str) -> Iterator[dict[str, str]]:
    """The context paragraphs of a HotpotQA file as passages `{"id", "title", "text"}`, each title and text once."""
    seen = set()
    for row in read_jsonl(path) if Path(path).suffix != ".json" else _json_rows(Path(path)):
        for title, sentences in _context(row):
            text = "".join(sentences).strip()
            if text and (title, text) not in seen:
                seen.add((title, text))
                yield {"id": f"p{len(seen)}", "title": title, "text": text}


def _json_rows(path: Path) -> list[dict[str, Any]]:
    rows = read_json(path)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InputError(
            f"{path}: expected a list of questions, found {type(rows).__name__}; use .jsonl for one a line"
        )
    return rows


def _context(row: dict[str, Any]) -> list[tuple[str, list[str]]]:
    context = row.get("context") or []
    if isinstance(context, dict):
        return list(zip(context["title"], context["sentences"], strict=True))
    return [(title, sentences) for title, sentences in context]


def _example(row: dict[str, Any], number: int) -> "dspy.Example":
    import dspy

    question = row.get("question")
    if not isinstance(question, str) or not question.strip():
        raise ValueError(f"'question' must be a text that is not empty; found {question!r}")
    answers = row.get("answers") or ([row["answer"]] if row.get("answer") not in (None, "") else [])
    if isinstance(answers, str):
        answers = [answers]
    if not answers or not all(isinstance(answer, str) and answer.strip() for answer in answers):
        raise ValueError(f"'answer' (a text) or 'answers' (a list of texts) is missing or not text; found {answers!r}")
    return dspy.Example(
        id=str(row.get("id", row.get("_id", number))),
        question=question,
        answer=answers[0],
        answers=list(answers),
        kind=str(row.get("kind", row.get("type", "question"))),
        hops=row.get("hops"),
        gold_titles=row.get("gold_titles") or _supporting_titles(row.get("supporting_facts")),
        gold_pids=row.get("gold_pids") or [],
        sub_questions=row.get("sub_questions") or [],
        sub_answers=row.get("sub_answers") or [],
        known=row.get("known"),
    ).with_inputs("question")


def _supporting_titles(facts: Any) -> list[str]:
    """HotpotQA's supporting facts, in either schema, as titles without repetition."""
    titles = facts["title"] if isinstance(facts, dict) else [title for title, _ in facts or []]
    return list(dict.fromkeys(titles))
