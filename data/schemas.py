"""Rows in the schemas of the public data sets, each read as one form of question and as titled paragraphs."""

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from raisf.data.tables import LISTS
from raisf.utils.text import answer_text
from raisf.utils.wording import is_yes_no

_PARAGRAPH = re.compile(r"-\d+$")
_NO_PARAGRAPH = ("operation", "no_evidence")
_YES_NO, _TRUTHS = ("yes", "no"), ("true", "false")
_IN_A_ROW = ("compositional", "inference", "bridge_comparison")
_OWN = (*LISTS, "hops", "known")
SCORINGS = ("squad", "triviaqa")
"""The rules for comparing answers (`raisf.evaluation.metrics.NORMALISERS`)."""


def schema_of(row: dict[str, Any]) -> str:
    """Whose schema a row is in, by its keys; "plain" is `question` with `answer` or `answers`: NQ-open's, and ours."""
    row = opened(row)
    if "Question" in row or isinstance(row.get("answer"), dict):
        return "triviaqa"
    if "target_scores" in row:
        return "bigbench"
    if "question_decomposition" in row:
        return "musique"
    if isinstance(row.get("answer"), bool):
        return "strategyqa"
    if "supporting_facts" in row:
        return "2wiki" if "evidences" in row else "hotpotqa"
    return "plain"


def question_row(row: dict[str, Any]) -> dict[str, Any]:
    """A row of any known schema with the names of this project: `question`, `answers`, and what else the row knows.

    That is `id`, `kind`, `hops`, `gold_titles`, `gold_pids`, `sub_questions`, `sub_answers`, `sub_titles`,
    `gold_sentences`, `known`, and `scoring`: whose rule answers are compared by, "squad" (the default) or "triviaqa".

    Raises:
        ValueError: The row has no question, or no answer that can be scored.
    """
    row = opened(row)
    schema = schema_of(row)
    found = _SCHEMAS[schema](row)
    question, answers = found["question"], found["answers"]
    if schema != "plain":  # which has read them; what somebody wrote beside a public set's own answer counts, too
        beside = [row[name] for name in ("answers", "golden_answers") if isinstance(row.get(name), str | list)]
        answers = [*_listed(answers), *(one for value in beside for one in _listed(value))]
    if not isinstance(question, str) or not question.strip():
        raise ValueError(f"'question' must be a text that is not empty; found {question!r}")
    if not (answers := [_as_text(one) for one in _listed(answers)]):
        raise ValueError(
            "'answer' (or 'answers') is missing (public test splits come without answers: take the dev split)"
        )
    if not all(isinstance(one, str) and one.strip() for one in answers):
        raise ValueError(f"'answer' must be a text, or 'answers' a list of texts; found {answers!r:.80}")
    if (scoring := row.get("scoring")) not in (None, *SCORINGS):
        raise ValueError(f"'scoring' must be {' or '.join(SCORINGS)}; found {scoring!r}")
    if len(answers) == 1 and answers[0].lower() in _TRUTHS and is_yes_no(question):
        answers = [_YES_NO[_TRUTHS.index(answers[0].lower())]]  # a boolean as text; an album may be called True
    # What somebody wrote beside a public set's own fields.
    own = {name: row[name] for name in _OWN if row.get(name) is not None and not found.get(name)}
    own |= {name: row[name] for name in ("kind", "scoring") if row.get(name) is not None}
    return {**found, **own, "answers": list(dict.fromkeys(answers))}


def paragraphs(row: dict[str, Any]) -> list[tuple[str, str]]:
    """The titled paragraphs that a row of HotpotQA, 2WikiMultihopQA or MuSiQue brings along; none for other schemas.

    A row of StrategyQA brings its facts, sentences that annotators wrote, each under the question's term.

    Raises:
        ValueError: There are paragraphs, but not in a form that is known.
    """
    row = opened(row)
    if "paragraphs" in row or schema_of(row) == "musique":
        found = _pairs(row.get("paragraphs") or _supporting(row), "title", "paragraph_text")
    elif schema_of(row) == "strategyqa":
        found = [(row.get("term") or "", fact) for fact in _listed(row.get("facts"))]
    else:
        found = _pairs(row.get("context"), "title", "sentences", "content")
    try:
        joined = [(str(title), text if isinstance(text, str) else joined_sentences(text)) for title, text in found]
    except (TypeError, AttributeError):  # null, or a number
        raise ValueError("a paragraph is neither a text nor a list of sentences") from None
    return [(title, text.strip()) for title, text in joined if text.strip()]


def new_paragraphs(found: Iterable[tuple[str, str]], seen: set[bytes]) -> Iterator[tuple[str, str, str]]:
    """Those among some paragraphs that were not seen yet, each with an id, `p1` and on, its title and its text.

    Args:
        found: Titles and texts.
        seen: A hash of each that came before, which those that are given now join.
    """
    for title, text in found:
        digest = hashlib.sha256(f"{title}\0{text}".encode()).digest()[:16]
        if digest not in seen:
            seen.add(digest)
            yield f"p{len(seen)}", title, text


def joined_sentences(sentences: Iterable[str]) -> str:
    """Sentences as one text: HotpotQA's begin with the space that parts them, those of 2WikiMultihopQA do not."""
    return " ".join(stripped for sentence in sentences if (stripped := sentence.strip()))


def opened(row: dict[str, Any]) -> dict[str, Any]:
    """A row of FlashRAG (Jin et al. 2024), whose data set's own fields stand in `metadata`, as a row of that set."""
    own = row.get("metadata")
    if "golden_answers" not in row or not isinstance(own, dict):
        return row
    known = {"supporting_facts", "question_decomposition"} & own.keys()
    return {**own, **row, "answer": row["golden_answers"]} if known else row


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Source, for `golden_answers`: FlashRAG; for `possible_answers`, a list as JSON: PopQA (Mallen et al. 2023)."""
    given = [row.get(name) for name in ("answer", "answers", "golden_answers", "possible_answers")]
    if given[-1] and isinstance(given[-1], str):
        try:
            given[-1] = json.loads(given[-1])
        except ValueError:
            raise ValueError(f"'possible_answers' must be a list, or one as JSON; found {given[-1]!r:.60}") from None
    answers = [answer for value in given for answer in _listed(value)]
    return {**row, "answers": answers, "kind": row.get("kind", row.get("type"))}


def _trivia_qa(row: dict[str, Any]) -> dict[str, Any]:
    """Source: Joshi et al. 2017; the hub's copy has the same fields in lower case with underscores."""
    given = row.get("Answer") or row.get("answer") or {}
    if not isinstance(given, dict):
        raise ValueError(
            f"a row with 'Question' is read as TriviaQA's, whose 'Answer' is an object; found {str(given)[:60]!r}: "
            "call the keys 'question' and 'answer' where the answer is a text"
        )
    answer = {key.lower(): value for key, value in given.items()}
    value = answer.get("value")
    known = value and value != "<unk>"  # what the hub's test split has for an answer
    return {
        "id": row.get("QuestionId", row.get("question_id")),
        "question": row.get("Question", row.get("question")),
        "answers": [value, *_listed(answer.get("aliases")), *_listed(answer.get("humananswers"))] if known else [],
        "hops": 1,
        "scoring": "triviaqa",
    }


def _hotpot_qa(row: dict[str, Any]) -> dict[str, Any]:
    """Source: Yang et al. 2018; Ho et al. 2020 (2WikiMultihopQA), whose evidences are one triple per hop."""
    supporting = _pairs(row["supporting_facts"], "title", "sent_id")
    titles = list(dict.fromkeys(title for title, _ in supporting))
    evidences = len(_pairs(row.get("evidences"), "relation", "entity"))
    steps = _two_wiki_steps(row, titles) if row.get("qa_pairs") else {}
    return {
        "id": row.get("id", row.get("_id")),
        "question": row.get("question"),
        "answers": row.get("answer"),
        "kind": row.get("type"),
        "hops": evidences or len(titles) or None,
        "gold_titles": titles,
        "gold_sentences": _named_sentences(row, supporting),
        **steps,
    }


def _named_sentences(row: dict[str, Any], supporting: list[tuple[Any, Any]]) -> list[str]:
    """The supporting sentences; none where the paragraphs are missing, or one of the sentences is not in them."""
    of = dict(_pairs(row.get("context"), "title", "sentences", "content"))
    found = [
        of[title][number].strip()
        for title, number in supporting
        if isinstance(of.get(title), list) and isinstance(number, int) and 0 <= number < len(of[title])
    ]
    return found if len(found) == len(supporting) else []


def _two_wiki_steps(row: dict[str, Any], titles: list[str]) -> dict[str, Any]:
    """The decomposition in a copy of 2WikiMultihopQA with `qa_pairs`: a question and an answering sentence per hop.

    Its answers are the objects of the evidences, in the order of the pairs; where a later question has one in its
    words, it refers to it as "#1", but in a comparison, whose parts stand alone. Nothing is given where pairs and
    evidences do not match, and no titles where one is not the subject of its triple: the supporting facts then tell
    them, which stand in the order of the hops (395 of the 395 where both are known), as the evidences do.
    """
    told, pairs = row.get("evidences") or [], row["qa_pairs"]
    triples = _matched(pairs, told)
    if not triples:
        return {}
    asked: list[str] = []
    for number, pair in enumerate(pairs):
        text = pair["question"]
        for earlier in range(number if row.get("type") != "comparison" else 0):
            text = re.sub(rf"(?<!\w){re.escape(triples[earlier][2])}(?!\w)", f"#{earlier + 1}", text)
        asked.append(text)
    if row.get("type") in _IN_A_ROW and "#" not in asked[-1]:
        return {}  # it has an earlier answer in other words, which nobody can know who breaks the question down
    named = [[t for t in titles if t == subject or t.startswith(f"{subject} (")] for subject, _, _ in triples]
    found = [one[0] for one in named if len(one) == 1]
    if triples != told and len(found) != len(pairs):
        return {}
    return {
        "sub_questions": asked,
        "sub_answers": [obj for _, _, obj in triples],
        "sub_titles": found if len(found) == len(pairs) else [],
    }


def _matched(pairs: list[dict[str, Any]], told: list[Any]) -> list[list[str]]:
    """The triple that each pair is about, each once; none at all where some pair has none."""
    if len(pairs) != len(told) or not all(isinstance(triple, list) and len(triple) == 3 for triple in told):
        return []
    triples = list[list[str]]()
    for pair in pairs:
        left = [triple for triple in told if triple not in triples]
        best = max(left, key=lambda triple: _matches(pair, triple), default=None)
        if best is None or not _matches(pair, best):
            return []
        triples.append(best)
    return triples


def _matches(pair: dict[str, Any], triple: Sequence[str]) -> int:
    """How well a triple fits a pair: its object may stand there in other words, as dates and nationalities do."""
    subject, _, obj = triple
    return 2 * (obj in pair["answer"]) + (subject in pair["question"] or subject in pair["answer"])


def _musique(row: dict[str, Any]) -> dict[str, Any]:
    """Source: Trivedi et al. 2022; an id begins with the number and the shape of the hops, such as 3hop1__.

    A step names its paragraph by its `idx`, or has it itself (FlashRAG); else its title is empty.
    """
    if row.get("answerable") is False:
        raise ValueError("cannot be answered from its paragraphs (MuSiQue-Full); take MuSiQue-Ans: musique_ans_v1.0")
    steps = row["question_decomposition"]
    marked = [paragraph for paragraph in row.get("paragraphs") or [] if paragraph.get("is_supporting")]
    title_of = {paragraph["idx"]: paragraph["title"] for paragraph in marked if paragraph.get("idx") is not None}
    own = [title for title, _ in _pairs(_supporting(row), "title", "paragraph_text")]
    supporting = own if len(own) == len(steps) else [title_of.get(step.get("paragraph_support_idx")) for step in steps]
    told = all(title is not None for title in supporting)
    identity, given = row.get("id"), row.get("answer")
    return {
        "id": identity,
        "question": row.get("question"),
        "answers": [*(given if isinstance(given, list) else [given]), *_listed(row.get("answer_aliases"))],
        "kind": str(identity).split("__")[0] if "__" in str(identity) else None,
        "hops": len(steps),
        "gold_titles": list(dict.fromkeys(supporting if told else [*(one["title"] for one in marked), *own])),
        "sub_questions": [step["question"] for step in steps],
        "sub_answers": [step["answer"] for step in steps],
        "sub_titles": [title or "" for title in supporting] if title_of or own else [],
    }


def _supporting(row: dict[str, Any]) -> list[Any]:
    """The paragraphs that MuSiQue's steps have themselves: FlashRAG's copy has these, and no others."""
    steps = row.get("question_decomposition") or []
    return [step["support_paragraph"] for step in steps if step.get("support_paragraph")]


def _strategy_qa(row: dict[str, Any]) -> dict[str, Any]:
    """Source: Geva et al. 2021; gold titles are those that any of the annotators took evidence from."""
    steps = list(row.get("decomposition") or [])
    named = [name for name in _texts(row.get("evidence")) if name not in _NO_PARAGRAPH]
    return {
        "id": row.get("qid", row.get("id")),
        "question": row.get("question"),
        "answers": "yes" if row["answer"] else "no",
        "kind": "yesno",
        "hops": len(steps) or None,
        "gold_titles": list(dict.fromkeys(_PARAGRAPH.sub("", name) for name in named)),
        "sub_questions": steps,
    }


def _big_bench(row: dict[str, Any]) -> dict[str, Any]:
    """Source: Srivastava et al. 2022, `task.json`; the option with the highest score is the answer."""
    scores = row["target_scores"] or {"": 0}
    best = max(scores, key=scores.__getitem__)
    closed = best.lower() in _YES_NO
    return {
        "question": row.get("input"),
        "answers": best.lower() if closed else best,
        "kind": "yesno" if closed else None,
    }


_SCHEMAS = {
    "plain": _plain,
    "triviaqa": _trivia_qa,
    "bigbench": _big_bench,
    "musique": _musique,
    "strategyqa": _strategy_qa,
    "hotpotqa": _hotpot_qa,
    "2wiki": _hotpot_qa,
}


def _as_text(answer: Any) -> Any:
    """An answer that is written as true, false or a number, as text; what is none of these as it is."""
    number = isinstance(answer, int) or (isinstance(answer, float) and math.isfinite(answer))
    return answer_text(answer) if number else answer


def _listed(value: Any) -> list[Any]:
    """The value if it is a list; a list of it if it is a single one; an empty list for None and ""."""
    return value if isinstance(value, list) else [] if value in (None, "") else [value]


def _pairs(value: Any, first: str, *seconds: str) -> list[tuple[Any, Any]]:
    """Pairs, in whichever way a copy writes them: [a, b] each, an object each, an object of lists, JSON in a text."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            raise ValueError(
                f"its supporting facts or paragraphs are the text {value!r:.60}, which is no JSON"
            ) from None
    try:
        if isinstance(value, dict):
            second = next(name for name in seconds if name in value)
            return list(zip(value[first], value[second], strict=True))
        return [
            (item[first], next(item[name] for name in seconds if name in item))
            if isinstance(item, dict)
            else (item[0], item[1])
            for item in value or []
        ]
    except (KeyError, IndexError, TypeError, ValueError, StopIteration) as error:
        shown = str(value)[:60]
        raise ValueError(f"expected pairs of {first!r} and {' or '.join(map(repr, seconds))}; found {shown}") from error


def _texts(value: Any) -> Iterator[str]:
    """All texts in nested lists, in their order."""
    if isinstance(value, str):
        yield value
    else:
        for item in value or []:
            yield from _texts(item)
