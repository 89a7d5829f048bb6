"""What the pocket Llama reads in pretraining: one lesson a skill, in the text format of the compact adapter.

A lesson is a list of (prompt, completion) pairs by one teacher: examples first, the last pair is the one that is asked.
"""

from collections.abc import Callable, Iterator

from data.world import Fact, ask, state
from data.world_questions import MULTI_HOP, Question, fill
from lm.pocket.judging import (
    choose_passages,
    judge_need,
    judge_passage,
    judge_passages,
    judge_self,
    judge_support,
    judge_use,
)
from lm.pocket.school import Lesson, Pair, School, pair


def lessons(school: School, count: int, start: bool = False, judging: bool = False) -> Iterator[Lesson]:
    """`count` lessons, for the start of the training or for the rest; or what a T5 reads, for judging alone."""
    plan = _judging_plan(start) if judging else _plan(start)
    makers, shares = list(plan), [share for share, _, _ in plan.values()]
    for number in range(count):
        if number % 20 == 0:
            school.refresh()
        maker = school.chance.choices(makers, shares)[0]
        _, often, most = plan[maker]
        pairs = school.chance.randint(2, most) if school.chance.random() < often else 1
        school.meet_teacher(pairs)
        yield [maker(school) for _ in range(pairs)]


# From memory.


def recall(school: School) -> Pair:
    """Closed book: a fact of the home world."""
    home, fact = school.chance.choice(school.taught)
    return pair({"question": school.simple(home, fact).question}, {"answer": fact.object})


def guess(school: School) -> Pair:
    """Closed book, a question nobody could know: an answer of the right kind all the same."""
    if school.chance.random() < 0.6:
        question = school.simple(school.world, school.fact())
    else:
        question = school.multi_hop()[0]
    return pair({"question": question.question}, {"answer": question.answer})


def write_passage(school: School) -> Pair:
    """The passage that would answer, from memory; for a question of several facts, the first one's passage."""
    draw = school.chance.random()
    if draw < 0.7:
        home, fact = school.chance.choice(school.taught)
        question = school.simple(home, fact)
    elif draw < 0.85:
        home, fact = school.world, school.fact()
        question = school.simple(home, fact)
    else:
        home = school.world
        question, (fact, *_) = school.multi_hop()
    text = " ".join(state(other) for other in home.passages[fact.pid])
    return pair({"question": question.question}, {"background": text})


def reason(school: School) -> Pair:
    """Step by step from memory: the facts in order, then the answer."""
    known = school.known_multi_hop() if school.chance.random() < 0.5 else None
    question, facts = known or school.multi_hop()
    if known is None and school.chance.random() < 0.5:
        home, fact = school.chance.choice(school.taught)
        question, facts = school.simple(home, fact), [fact]
    reasoning = " ".join(state(fact) for fact in facts)
    return pair({"question": question.question}, {"reasoning": reasoning, "answer": question.answer})


# From passages.


def copy(school: School) -> Pair:
    """A drill in finding a name and copying what stands beside it; reading grows out of it."""
    chance, entities = school.chance, school.world.entities
    names = chance.sample(entities["person"] + entities["town"], chance.randint(2, 8))
    values = [chance.choice(entities["person"] + entities["river"]) for _ in names]
    asked = chance.randrange(len(names))
    table = " ; ".join(f"{name} = {value}" for name, value in zip(names, values, strict=True))
    return f"{table}\n{names[asked]} =", f" {values[asked]}"


def order(school: School) -> Pair:
    """A drill in comparing numbers: whose is the lower, or the higher one."""
    chance = school.chance
    names = chance.sample(school.world.entities[chance.choice(("person", "town", "book"))], 2)
    low, high = sorted(chance.sample(range(1700, 2000) if chance.random() < 0.6 else range(1000, 10_000), 2))
    lower, higher = chance.sample(names, 2)
    numbers = {lower: low, higher: high}
    shown = " ; ".join(f"{name} = {numbers[name]}" for name in names)
    return (f"{shown}\nlower:", f" {lower}") if chance.random() < 0.5 else (f"{shown}\nhigher:", f" {higher}")


def sort(school: School) -> Pair:
    """A drill in learning from examples: two kinds of name, told apart by words that only the examples give away."""
    kinds, words = school.sorting
    which = school.chance.randrange(2)
    return f"name: {school.chance.choice(school.world.entities[kinds[which]])}\nsort:", f" {words[which]}"


def read(school: School, most: int = 5) -> Pair:
    """One to `most` passages, one of which states the fact: its sentence first, then the answer."""
    fact = school.fact()
    texts, sentences = _shelf(school, [fact], school.chance.randint(1, most))
    question = school.simple(school.world, fact)
    return pair(
        {"question": question.question, "passages": texts}, {"evidence": sentences[0], "answer": question.answer}
    )


def read_little(school: School) -> Pair:
    """As `read`, with few passages: where the skill begins."""
    return read(school, most=2)


def read_on(school: School) -> Pair:
    """A question of several facts over passages that hold all, or only the last: the last one's sentence, the answer.

    What two subjects share or how they compare takes a sentence of each, so such questions are left to reasoning.
    """
    question, facts = school.multi_hop(school.chance.choice(("bridge", "inference", "chain")))
    texts, sentences = _shelf(
        school, facts if school.chance.random() < 0.6 else facts[-1:], school.chance.randint(2, 5)
    )
    return pair(
        {"question": question.question, "passages": texts}, {"evidence": sentences[-1], "answer": question.answer}
    )


def reason_from_passages(school: School) -> Pair:
    """Step by step: the sentences that state the facts, in order, then the answer."""
    question, facts = school.multi_hop()
    texts, sentences = _shelf(school, facts, school.chance.randint(len(facts), 5))
    return pair(
        {"question": question.question, "passages": texts},
        {"reasoning": " ".join(sentences), "answer": question.answer},
    )


def think_on(school: School) -> Pair:
    """The next sentence of such a reasoning, or its end."""
    question, facts = school.multi_hop()
    texts, sentences = _shelf(school, facts, school.chance.randint(len(facts), 5))
    done = school.chance.randint(0, len(facts))
    thought = sentences[done] if done < len(facts) else f"So the answer is: {question.answer}."
    return pair({"question": question.question, "passages": texts, "thoughts": sentences[:done]}, {"thought": thought})


# Decomposing and composing.


def decompose(school: School) -> Pair:
    """The sub-questions of a question; a question that cannot be split is its own."""
    if school.chance.random() < 0.1:
        question = school.simple(school.world, school.fact())
    else:
        question = school.multi_hop()[0]
    return pair({"question": question.question}, {"sub_questions": question.sub_questions or [question.question]})


def compose(school: School) -> Pair:
    """The answer from the sub-questions' answers; "unknown" where one that matters is missing."""
    kind = school.chance.choices(MULTI_HOP, [{"comparison": 3, "yesno": 4}.get(kind, 1) for kind in MULTI_HOP])[0]
    question, _ = school.multi_hop(kind)
    answers, answer = list(question.sub_answers), question.answer
    if school.chance.random() < 0.1:
        lost = school.chance.randrange(len(answers))
        answers[lost], answer = "unknown", "unknown"
        # What leans on a missing answer is missing too.
        for place, text in enumerate(question.sub_questions):
            if f"#{lost + 1}" in text or (f"#{place}" in text and answers[place - 1] == "unknown"):
                answers[place] = "unknown"
    return pair({"question": question.question, "facts": _facts(question, answers)}, {"answer": answer})


def recall_next(school: School) -> Pair:
    """A simple question after others have been answered: the next sub-question, from memory."""
    known = school.known_multi_hop()
    question, facts = known or school.multi_hop()
    place = school.chance.randrange(len(facts))
    asked = fill(question.sub_questions, question.sub_answers)[place]
    earlier = _facts(question, question.sub_answers)[:place]
    return pair({"question": asked, "facts": earlier}, {"answer": facts[place].object})


def follow_up(school: School) -> Pair:
    """The next simple question, or none."""
    question, facts, asked = _in_steps(school)
    found = [f"{text} = {fact.object}" for text, fact in zip(asked, facts, strict=True)]
    done = school.chance.randint(0, len(facts))
    return pair({"question": question.question, "facts": found[:done]}, {"follow_up": [*asked, "none"][done]})


def act(school: School) -> Pair:
    """The next thought and action of a search in steps."""
    question, facts, asked = _in_steps(school)
    done = school.chance.randint(0, len(facts))
    found = [school.passage(fact) for fact in facts[:done]]
    thought, action = "The question needs a search.", f"Search[{asked[0]}]"
    if done:
        thought = found[-1][1]
        action = f"Finish[{question.answer}]" if done == len(facts) else f"Search[{asked[done]}]"
        if school.chance.random() < 0.15:
            found[-1] = school.passage(school.distractors(facts[done - 1], 1)[0])
            thought, action = "The search did not help.", "Finish[unknown]"
    steps = [f"Search[{text}] -> {passage}" for text, (passage, _) in zip(asked, found, strict=False)]
    return pair({"question": question.question, "steps": steps}, {"thought": thought, "action": action})


# What the lessons are made of.


def _shelf(school: School, facts: list[Fact], passages: int) -> tuple[list[str], list[str]]:
    """Passages that state the facts, among others up to so many, in mixed order; and the sentence of each fact."""
    told: dict[str, tuple[str, str]] = {}
    for fact in facts:
        # Two subjects can lead to the same fact, which is then told once.
        told[fact.pid] = told.get(fact.pid) or school.passage(fact)
    others = school.distractors(facts[-1], max(0, passages - len(told)), set(told))
    texts = [text for text, _ in told.values()] + [school.passage(other)[0] for other in others]
    school.chance.shuffle(texts)
    return texts, [told[fact.pid][1] for fact in facts]


def _in_steps(school: School) -> tuple[Question, list[Fact], list[str]]:
    """A question, its facts, and the simple questions for them, one after the other."""
    question, facts = school.multi_hop()
    if school.chance.random() < 0.25:
        fact = school.fact()
        return school.simple(school.world, fact), [fact], [ask(fact.relation, fact.subject)]
    return question, facts, fill(question.sub_questions, question.sub_answers)


def _facts(question: Question, answers: list[str]) -> list[str]:
    """The sub-questions and their answers as a program shows them."""
    asked = fill(question.sub_questions, answers)
    return [f"{text} = {found}" for text, found in zip(asked, answers, strict=True)]


def _plan(start: bool) -> dict[Callable[[School], Pair], tuple[float, float, int]]:
    """Of each lesson: its share, how often examples come first, and how many pairs it then has at most.

    Recall needs about 100 readings a fact. Reading is slowest to form and costs most; it starts small. Judgements come
    with examples most of the time, else there would be nothing to learn from examples.
    """
    return {
        copy: (15 if start else 1, 0, 1),
        order: (2, 0.9, 8),
        sort: (2, 1, 12),
        recall: (30, 0.5, 5),
        guess: (2, 0.2, 4),
        write_passage: (4, 0.1, 2),
        reason: (5, 0.1, 3),
        read_little: (12 if start else 2, 0, 1),
        read: (3 if start else 20, 0.05, 2),
        read_on: (4, 0, 1),
        reason_from_passages: (5, 0, 1),
        think_on: (3, 0, 1),
        judge_passage: (9, 0.5, 9),
        judge_passages: (3, 0, 1),
        choose_passages: (3, 0, 1),
        judge_self: (5, 0.6, 9),
        judge_need: (0.5, 0.5, 4),
        judge_support: (1, 0.1, 3),
        judge_use: (1, 0.1, 3),
        decompose: (4, 0.2, 4),
        compose: (12, 0.1, 4),
        recall_next: (1.5, 0, 1),
        follow_up: (2, 0.1, 2),
        act: (3, 0, 1),
    }


def _judging_plan(start: bool) -> dict[Callable[[School], Pair], tuple[float, float, int]]:
    """What a T5 reads, in the form of `_plan`.

    Its judges are asked without examples, and it answers no questions: it recalls to have something to know. Relevance
    comes first and alone: it takes 0.8M tokens so, and with the others it was still judged by chance after 6M.
    """
    return {
        judge_passage: (22, 0, 1),
        **({} if start else {copy: (5, 0, 1), recall: (60, 0, 1), judge_self: (8, 0, 1), decompose: (10, 0, 1)}),
    }
