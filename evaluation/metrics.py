"""The field's measures of one answer or one ranking, as pure functions."""

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence

from raisf.utils.text import composed

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_TRIVIA_PUNCTUATION = str.maketrans(dict.fromkeys(string.punctuation + "‘’´`", " "))  # noqa: RUF001 - as it stands there
# Words that a hyphen or an apostrophe joins are one: "no-one" says no less than "nobody".
_YES_NO = re.compile(r"(?<![^\W_])(?<![^\W_]['’‐‑-])(yes|no)(?!['’‐‑-]?[^\W_])")  # noqa: RUF001
_CLOSED_ANSWERS = frozenset({"yes", "no", "noanswer"})


def normalise(text: str) -> str:
    """Lower case, without ASCII punctuation, without the articles a, an, the, single spaces.

    Source: Rajpurkar et al. 2016 (SQuAD), `normalize_answer` of the official script; HotpotQA uses the same. Letters
    with accents are also the same however they are composed: a pdf's, or a Mac's, have them apart.
    """
    return " ".join(_ARTICLES.sub(" ", composed(text.lower().translate(_PUNCTUATION))).split())


def normalise_trivia(text: str) -> str:
    """As `normalise`, but punctuation, typographic quotes among it, becomes spaces: "Jay-Z" is "jay z", not "jayz".

    Source: Joshi et al. 2017 (TriviaQA), `normalize_answer` of the official `triviaqa_evaluation.py`.
    """
    return " ".join(_ARTICLES.sub(" ", composed(text.lower().translate(_TRIVIA_PUNCTUATION))).split())


NORMALISERS: dict[str, Callable[[str], str]] = {"squad": normalise, "triviaqa": normalise_trivia}
"""How answers are normalised before they are compared, by the `scoring` that a question row may name."""


def exact_match(prediction: str, answers: Sequence[str], scoring: str | None = None) -> float:
    """1.0 if the normalised prediction equals any normalised gold answer, else 0.0.

    Args:
        prediction: What is scored.
        answers: The gold answers.
        scoring: A key of `NORMALISERS`; None for "squad".

    Source: Rajpurkar et al. 2016, section 6.1; the maximum over aliases as in Joshi et al. 2017 (TriviaQA).
    """
    normal = NORMALISERS[scoring or "squad"]
    found = normal(prediction)
    return float(any(found == normal(answer) for answer in answers))


def token_f1(prediction: str, answers: Sequence[str], scoring: str | None = None) -> float:
    """F1 of the bags of normalised words of prediction and gold, in [0, 1]; the best over the gold answers.

    Where either side is `yes`, `no` or `noanswer`, a share of words means nothing: equal is 1.0, different 0.0
    (HotpotQA's rule, which "triviaqa" has not).
    Where both sides normalise to nothing it is 1.0 (SQuAD 2.0's rule), so that F1 is never below exact match.

    Source: Rajpurkar et al. 2016, section 6.1; Yang et al. 2018 (HotpotQA), `hotpot_evaluate_v1.py`.
    """
    normal, closed = NORMALISERS[scoring or "squad"], frozenset() if scoring == "triviaqa" else _CLOSED_ANSWERS
    return max((_f1(normal(prediction), normal(answer), closed) for answer in answers), default=0.0)


def accuracy(prediction: str, answers: Sequence[str], scoring: str | None = None) -> float:
    """Whether a yes/no answer is right (1.0 or 0.0), read leniently; for any other question, exact match.

    A question counts as yes/no if every gold answer normalises to `yes` or `no`. Its prediction is read as the first
    word that is `yes` or `no`, wherever it stands and whatever punctuation it touches ("I think no, as ..." and
    "Answer:no" read as no); without such a word it is wrong. "no-one" is another word.

    Source: Geva et al. 2021 (StrategyQA) score yes/no accuracy; Liu et al. 2024 (RA-ISF), table 1.
    """
    if not are_yes_no(answers):
        return exact_match(prediction, answers, scoring)
    said = _YES_NO.search(prediction.lower())
    return float(said is not None and said[0] in {normalise(answer) for answer in answers})


def are_yes_no(answers: Sequence[str]) -> bool:
    """Whether there are gold answers, and each normalises to `yes` or `no`."""
    return bool(answers) and {normalise(answer) for answer in answers} <= {"yes", "no"}


def recall_at_k(ranked: Sequence[str], gold: Sequence[str], k: int) -> float:
    """Share of the distinct gold ids (or titles) among the first k of the ranking, in [0, 1].

    Args:
        ranked: Ids or titles, best first; repeats count once.
        gold: Ids or titles of what supports the answer.
        k: How many of the ranking are looked at.

    Raises:
        ValueError: There is no gold (recall is undefined: leave the question out), or k is below 1.

    Source: Manning, Raghavan and Schuetze 2008, section 8.4.
    """
    wanted = _checked(gold, k)
    return len(wanted & set(ranked[:k])) / len(wanted)


def precision_at_k(ranked: Sequence[str], gold: Sequence[str], k: int) -> float:
    """Share of the k first places of the ranking that hold gold, in [0, 1].

    It divides by k also where fewer were retrieved, as trec_eval does: an empty place is a wasted one. Several passages
    with one gold title all count.

    Raises:
        ValueError: There is no gold, or k is below 1.

    Source: Manning, Raghavan and Schuetze 2008, section 8.4; trec_eval's P_k.
    """
    wanted = _checked(gold, k)
    return sum(item in wanted for item in ranked[:k]) / k


def _f1(prediction: str, answer: str, closed: frozenset[str]) -> float:
    if prediction == answer:
        return 1.0
    if prediction in closed or answer in closed:
        return 0.0
    found, wanted = prediction.split(), answer.split()
    common = (Counter(found) & Counter(wanted)).total()
    return 2 * common / (len(found) + len(wanted))


def _checked(gold: Sequence[str], k: int) -> set[str]:
    if k < 1:
        raise ValueError(f"k must be at least 1, found {k}")
    if not gold:
        raise ValueError("no gold ids or titles: retrieval cannot be scored for this question")
    return set(gold)
