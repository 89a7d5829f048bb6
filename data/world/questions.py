"""Questions about the closed world, each with its gold answers, passages and decomposition."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from raisf.data.world.generator import Fact, Region, ask, put
from raisf.data.world.implicit import BEFORE, IMPLICIT
from raisf.data.world.schema import RELATIONS

# The kinds, how common they are, and the data set whose questions they echo.
KINDS = ("lookup", "trivia", "bridge", "comparison", "chain", "inference", "yesno")
WEIGHTS = (30, 10, 15, 10, 10, 10, 15)
ECHOES = {
    "lookup": "NQ",
    "trivia": "TriviaQA",
    "bridge": "HotpotQA",
    "comparison": "HotpotQA",
    "chain": "2WikiMultihopQA",
    "inference": "2WikiMultihopQA",
    "yesno": "StrategyQA",
}
SINGLE_HOP = ("lookup", "trivia")
MULTI_HOP = tuple(kind for kind in KINDS if kind not in SINGLE_HOP)

GIVE_UP = 100
"""So many questions drawn in a row that were there already: a region has hardly any others."""


@dataclass(slots=True)
class Question:
    """A question with everything that is true of it.

    Attributes:
        kind: lookup (one fact), trivia (one fact, asked by an alias), bridge (two facts in a row), chain (three or
            four), inference (two, the middle unnamed), comparison (two subjects) or yesno (two subjects, two or four
            facts, of which the question names none or all).
        answers: The answer, and its alias where it has one.
        hops: How many facts it takes.
        sub_questions: The gold decomposition; "#1" stands for the first sub-answer. Empty for a single fact.
        sub_answers: The sub-questions' answers.
        gold_pids: The passages that state the facts, in the order of the sub-questions; "" for one that none states.
        gold_titles: The facts' subjects, which are those passages' titles.
        relations: The names of the facts' relations.
        known: Every fact was taught to the shipped pocket Llama.
        in_corpus: Every fact is stated in the corpus.
        answerable: Every fact was taught or is stated; of the others nobody can know the answer.
    """

    question: str
    answer: str
    kind: str
    answers: list[str] = field(default_factory=list)
    sub_questions: list[str] = field(default_factory=list)
    sub_answers: list[str] = field(default_factory=list)
    gold_pids: list[str] = field(default_factory=list)
    gold_titles: list[str] = field(default_factory=list)
    relations: list[str] = field(default_factory=list)
    hops: int = 1
    known: bool = False
    in_corpus: bool = True
    answerable: bool = True


def question_and_facts(
    region: Region, kind: str, rng: random.Random, fact: Fact | None = None
) -> tuple[Question, list[Fact]]:
    """A question of one kind about a region, and the facts it takes, in the order of the sub-questions.

    Args:
        region: Where its entities live.
        kind: One of `KINDS`.
        rng: The source of every choice.
        fact: For a single fact, the one to ask for (trivia: its subject has an alias); any if not given.
    """
    if kind in SINGLE_HOP:
        question, facts = _single(region, kind, rng, fact)
    elif kind == "inference":
        question, facts = _inferred(region, rng)
    elif kind in ("bridge", "chain"):
        question, facts = _chained(region, kind, 2 if kind == "bridge" else rng.choice((3, 3, 4)), rng)
    elif kind == "comparison":
        question, facts = _compared(region, rng)
    else:
        question, facts = _yes_or_no(region, rng)
    question.answers = [question.answer]
    if alias := region.aliases.get(question.answer):
        question.answers.append(alias)
    question.gold_pids = [fact.pid if fact.in_corpus else "" for fact in facts]
    question.gold_titles = [fact.subject for fact in facts]
    question.relations = [fact.relation.name for fact in facts]
    question.hops = len(facts)
    question.known = all(fact.taught for fact in facts)
    question.in_corpus = all(fact.in_corpus for fact in facts)
    question.answerable = all(fact.taught or fact.in_corpus for fact in facts)
    return question, facts


def questions(region: Region, count: int, rng: random.Random) -> Iterator[Question]:
    """Up to `count` different questions about a region, kinds mixed by `WEIGHTS`."""
    seen: set[str] = set()
    in_vain = 0
    while len(seen) < count and in_vain < GIVE_UP:
        made, _ = question_and_facts(region, rng.choices(KINDS, WEIGHTS)[0], rng)
        in_vain += 1
        if made.question not in seen:
            seen.add(made.question)
            in_vain = 0
            yield made


Made = tuple[Question, list[Fact]]


def _single(region: Region, kind: str, rng: random.Random, fact: Fact | None) -> Made:
    if fact is None:
        subject = rng.choice(list(region.aliases if kind == "trivia" else region.kinds))
        fact = rng.choice(region.about(subject))
    called = region.aliases[fact.subject] if kind == "trivia" else fact.subject
    return Question(ask(fact.relation, called, rng), fact.object, kind), [fact]


def _inferred(region: Region, rng: random.Random) -> Made:
    while True:
        implicit = rng.choice(IMPLICIT)
        subject = rng.choice(region.entities[implicit.kind])
        facts = _walk(region, subject, implicit.path)
        if facts[-1].object != subject:
            text = put(rng.choice(implicit.questions), s=subject)
            return _of_several_facts(text, facts[-1].object, "inference", facts), facts


def _chained(region: Region, kind: str, hops: int, rng: random.Random) -> Made:
    while True:
        subject = rng.choice(list(region.kinds))
        facts: list[Fact] = []
        phrase, text = subject, ""
        for step in range(hops):
            last = step == hops - 1
            options = [fact for fact in region.about(subject) if last or fact.relation.noun]
            if not options:
                break
            fact = rng.choice(options)
            text = ask(fact.relation, phrase, rng)
            phrase = put(fact.relation.noun, s=phrase)
            facts.append(fact)
            subject = fact.object
        visited = [fact.subject for fact in facts]
        if len(facts) == hops and len(set(visited)) == hops and subject not in visited:
            return _of_several_facts(text, subject, kind, facts), facts


def _compared(region: Region, rng: random.Random) -> Made:
    options = [(kind, one) for kind, relations in RELATIONS.items() for one in relations if one.comparison]
    while True:
        kind, relation = rng.choice(options)
        a, b = rng.sample(region.entities[kind], 2)
        facts = [region.fact(a, relation.name), region.fact(b, relation.name)]
        if facts[0].object != facts[1].object:
            answer = a if _comes_first(*facts) else b
            return _of_several_facts(put(relation.comparison, a=a, b=b), answer, "comparison", facts), facts


def _yes_or_no(region: Region, rng: random.Random) -> Made:
    """Half of the answers are yes: left to chance, most would be no."""
    want, way = rng.random() < 0.5, rng.random()
    direct = [(kind, one) for kind, relations in RELATIONS.items() for one in relations if one.yes_no]
    while True:
        if way < 0.55:
            kind, relation = rng.choice(direct)
            a, b = rng.sample(region.entities[kind], 2)
            facts, template = [region.fact(a, relation.name), region.fact(b, relation.name)], relation.yes_no
            if relation.comparison and facts[0].object == facts[1].object:
                continue
            yes = _comes_first(*facts) if relation.comparison else facts[0].object == facts[1].object
        elif way < 0.8:
            implicit = rng.choice(IMPLICIT)
            a, b = rng.sample(region.entities[implicit.kind], 2)
            facts, template = _walk(region, a, implicit.path) + _walk(region, b, implicit.path), implicit.yes_no
            yes = facts[1].object == facts[3].object
        else:
            before = rng.choice(BEFORE)
            a, b = rng.choice(region.entities[before.a[0]]), rng.choice(region.entities[before.b[0]])
            facts, template = [region.fact(a, before.a[1]), region.fact(b, before.b[1])], before.question
            if facts[0].object == facts[1].object:
                continue
            yes = int(facts[0].object) < int(facts[1].object)
        if yes == want:
            return _of_several_facts(put(template, a=a, b=b), "yes" if yes else "no", "yesno", facts), facts


def _of_several_facts(text: str, answer: str, kind: str, facts: list[Fact]) -> Question:
    """A question of several facts: one that is about an earlier one's object asks for it as "#1", "#2", ..."""
    subs = []
    for place, fact in enumerate(facts):
        follows = place > 0 and kind != "comparison" and facts[place - 1].object == fact.subject
        subs.append(ask(fact.relation, f"#{place}" if follows else fact.subject))
    return Question(text, answer, kind, sub_questions=subs, sub_answers=[fact.object for fact in facts])


def _walk(region: Region, subject: str, path: tuple[str, str]) -> list[Fact]:
    first = region.fact(subject, path[0])
    return [first, region.fact(first.object, path[1])]


def _comes_first(one: Fact, other: Fact) -> bool:
    return (int(one.object) < int(other.object)) == (one.relation.first == "lower")
