"""What the pocket Llama reads in pretraining: one lesson a skill, in the text format of the compact adapter.

A lesson is a list of (prompt, completion) pairs by one teacher: examples first, the last pair is the one that is asked.
"""

from collections.abc import Callable, Iterator

from raisf.data.world.generator import Fact, ask, state
from raisf.data.world.questions import MULTI_HOP, Question
from raisf.lm.pocket.judging import (
    choose_passages,
    judge_need,
    judge_passage,
    judge_passages,
    judge_self,
    judge_support,
    judge_use,
)
from raisf.lm.pocket.sampler import Lesson, LessonSampler, PromptCompletion, prompt_completion
from raisf.utils.wording import filled


def lessons(sampler: LessonSampler, count: int, start: bool = False, judging: bool = False) -> Iterator[Lesson]:
    """`count` lessons, for the start of the training or for the rest; or what a T5 reads, for judging alone."""
    plan = _judging_plan(start) if judging else _plan(start)
    makers, shares = list(plan), [share for share, _, _ in plan.values()]
    for number in range(count):
        if number % 20 == 0:
            sampler.refresh()
        maker = sampler.rng.choices(makers, shares)[0]
        _, often, most = plan[maker]
        pairs = sampler.rng.randint(2, most) if sampler.rng.random() < often else 1
        sampler.meet_teacher(pairs)
        yield [maker(sampler) for _ in range(pairs)]


# From memory.


def recall(sampler: LessonSampler) -> PromptCompletion:
    """Closed book: a fact of the home world."""
    home, fact = sampler.rng.choice(sampler.taught)
    return prompt_completion({"question": sampler.simple(home, fact).question}, {"answer": fact.object})


def guess(sampler: LessonSampler) -> PromptCompletion:
    """Closed book, a question nobody could know: an answer of the right kind all the same."""
    if sampler.rng.random() < 0.6:
        question = sampler.simple(sampler.world, sampler.fact())
    else:
        question = sampler.multi_hop()[0]
    return prompt_completion({"question": question.question}, {"answer": question.answer})


def write_passage(sampler: LessonSampler) -> PromptCompletion:
    """The passage that would answer, from memory; for a question of several facts, the first one's passage."""
    draw = sampler.rng.random()
    if draw < 0.7:
        home, fact = sampler.rng.choice(sampler.taught)
        question = sampler.simple(home, fact)
    elif draw < 0.85:
        home, fact = sampler.world, sampler.fact()
        question = sampler.simple(home, fact)
    else:
        home = sampler.world
        question, (fact, *_) = sampler.multi_hop()
    text = " ".join(state(other) for other in home.passages[fact.pid])
    return prompt_completion({"question": question.question}, {"background": text})


def reason(sampler: LessonSampler) -> PromptCompletion:
    """Step by step from memory: the facts in order, then the answer."""
    known = sampler.known_multi_hop() if sampler.rng.random() < 0.5 else None
    question, facts = known or sampler.multi_hop()
    if known is None and sampler.rng.random() < 0.5:
        home, fact = sampler.rng.choice(sampler.taught)
        question, facts = sampler.simple(home, fact), [fact]
    reasoning = " ".join(state(fact) for fact in facts)
    return prompt_completion({"question": question.question}, {"reasoning": reasoning, "answer": question.answer})


# From passages.


def copy(sampler: LessonSampler) -> PromptCompletion:
    """A drill in finding a name and copying what stands beside it; reading grows out of it."""
    rng, entities = sampler.rng, sampler.world.entities
    names = rng.sample(entities["person"] + entities["town"], rng.randint(2, 8))
    values = [rng.choice(entities["person"] + entities["river"]) for _ in names]
    asked = rng.randrange(len(names))
    table = " ; ".join(f"{name} = {value}" for name, value in zip(names, values, strict=True))
    return f"{table}\n{names[asked]} =", f" {values[asked]}"


def order(sampler: LessonSampler) -> PromptCompletion:
    """A drill in comparing numbers: whose is the lower, or the higher one."""
    rng = sampler.rng
    names = rng.sample(sampler.world.entities[rng.choice(("person", "town", "book"))], 2)
    low, high = sorted(rng.sample(range(1700, 2000) if rng.random() < 0.6 else range(1000, 10_000), 2))
    lower, higher = rng.sample(names, 2)
    numbers = {lower: low, higher: high}
    shown = " ; ".join(f"{name} = {numbers[name]}" for name in names)
    return (f"{shown}\nlower:", f" {lower}") if rng.random() < 0.5 else (f"{shown}\nhigher:", f" {higher}")


def sort(sampler: LessonSampler) -> PromptCompletion:
    """A drill in learning from examples: two kinds of name, told apart by words that only the examples give away."""
    kinds, words = sampler.sorting
    which = sampler.rng.randrange(2)
    return f"name: {sampler.rng.choice(sampler.world.entities[kinds[which]])}\nsort:", f" {words[which]}"


def read(sampler: LessonSampler, most: int = 5) -> PromptCompletion:
    """One to `most` passages, one of which states the fact: its sentence first, then the answer."""
    fact = sampler.fact()
    texts, sentences = _shelf(sampler, [fact], sampler.rng.randint(1, most))
    question = sampler.simple(sampler.world, fact)
    return prompt_completion(
        {"question": question.question, "passages": texts}, {"evidence": sentences[0], "answer": question.answer}
    )


def read_little(sampler: LessonSampler) -> PromptCompletion:
    """As `read`, with few passages: where the skill begins."""
    return read(sampler, most=2)


def read_on(sampler: LessonSampler) -> PromptCompletion:
    """A question of several facts over passages that hold all, or only the last: the last one's sentence, the answer.

    What two subjects share or how they compare takes a sentence of each, so such questions are left to reasoning.
    """
    question, facts = sampler.multi_hop(sampler.rng.choice(("bridge", "inference", "chain")))
    texts, sentences = _shelf(sampler, facts if sampler.rng.random() < 0.6 else facts[-1:], sampler.rng.randint(2, 5))
    return prompt_completion(
        {"question": question.question, "passages": texts}, {"evidence": sentences[-1], "answer": question.answer}
    )


def reason_from_passages(sampler: LessonSampler) -> PromptCompletion:
    """Step by step: the sentences that state the facts, in order, then the answer."""
    question, facts = sampler.multi_hop()
    texts, sentences = _shelf(sampler, facts, sampler.rng.randint(len(facts), 5))
    return prompt_completion(
        {"question": question.question, "passages": texts},
        {"reasoning": " ".join(sentences), "answer": question.answer},
    )


def think_on(sampler: LessonSampler) -> PromptCompletion:
    """The next sentence of such a reasoning, or its end."""
    question, facts = sampler.multi_hop()
    texts, sentences = _shelf(sampler, facts, sampler.rng.randint(len(facts), 5))
    done = sampler.rng.randint(0, len(facts))
    thought = sentences[done] if done < len(facts) else f"So the answer is: {question.answer}."
    return prompt_completion(
        {"question": question.question, "passages": texts, "thoughts": sentences[:done]}, {"thought": thought}
    )


# Decomposing and composing.


def decompose(sampler: LessonSampler) -> PromptCompletion:
    """The sub-questions of a question; a question that cannot be split is its own."""
    if sampler.rng.random() < 0.1:
        question = sampler.simple(sampler.world, sampler.fact())
    else:
        question = sampler.multi_hop()[0]
    return prompt_completion(
        {"question": question.question}, {"sub_questions": question.sub_questions or [question.question]}
    )


def compose(sampler: LessonSampler) -> PromptCompletion:
    """The answer from the sub-questions' answers; "unknown" where one that matters is missing."""
    kind = sampler.rng.choices(MULTI_HOP, [{"comparison": 3, "yesno": 4}.get(kind, 1) for kind in MULTI_HOP])[0]
    question, _ = sampler.multi_hop(kind)
    answers, answer = list(question.sub_answers), question.answer
    if sampler.rng.random() < 0.1:
        lost = sampler.rng.randrange(len(answers))
        answers[lost], answer = "unknown", "unknown"
        # What leans on a missing answer is missing too.
        for place, text in enumerate(question.sub_questions):
            if f"#{lost + 1}" in text or (f"#{place}" in text and answers[place - 1] == "unknown"):
                answers[place] = "unknown"
    return prompt_completion({"question": question.question, "facts": _facts(question, answers)}, {"answer": answer})


def recall_next(sampler: LessonSampler) -> PromptCompletion:
    """A simple question after others have been answered: the next sub-question, from memory."""
    known = sampler.known_multi_hop()
    question, facts = known or sampler.multi_hop()
    place = sampler.rng.randrange(len(facts))
    asked = filled(question.sub_questions, question.sub_answers)[place]
    earlier = _facts(question, question.sub_answers)[:place]
    return prompt_completion({"question": asked, "facts": earlier}, {"answer": facts[place].object})


def follow_up(sampler: LessonSampler) -> PromptCompletion:
    """The next simple question, or none."""
    question, facts, asked = _in_steps(sampler)
    found = [f"{text} = {fact.object}" for text, fact in zip(asked, facts, strict=True)]
    done = sampler.rng.randint(0, len(facts))
    return prompt_completion(
        {"question": question.question, "facts": found[:done]}, {"follow_up": [*asked, "none"][done]}
    )


def act(sampler: LessonSampler) -> PromptCompletion:
    """The next thought and action of a search in steps."""
    question, facts, asked = _in_steps(sampler)
    done = sampler.rng.randint(0, len(facts))
    found = [sampler.passage(fact) for fact in facts[:done]]
    thought, action = "The question needs a search.", f"Search[{asked[0]}]"
    if done:
        thought = found[-1][1]
        action = f"Finish[{question.answer}]" if done == len(facts) else f"Search[{asked[done]}]"
        if sampler.rng.random() < 0.15:
            found[-1] = sampler.passage(sampler.distractors(facts[done - 1], 1)[0])
            thought, action = "The search did not help.", "Finish[unknown]"
    steps = [f"Search[{text}] -> {passage}" for text, (passage, _) in zip(asked, found, strict=False)]
    return prompt_completion({"question": question.question, "steps": steps}, {"thought": thought, "action": action})


# What the lessons are made of.


def _shelf(sampler: LessonSampler, facts: list[Fact], passages: int) -> tuple[list[str], list[str]]:
    """Passages that state the facts, among others up to so many, in mixed order; and the sentence of each fact."""
    told: dict[str, tuple[str, str]] = {}
    for fact in facts:
        # Two subjects can lead to the same fact, which is then told once.
        told[fact.pid] = told.get(fact.pid) or sampler.passage(fact)
    others = sampler.distractors(facts[-1], max(0, passages - len(told)), set(told))
    texts = [text for text, _ in told.values()] + [sampler.passage(other)[0] for other in others]
    sampler.rng.shuffle(texts)
    return texts, [told[fact.pid][1] for fact in facts]


def _in_steps(sampler: LessonSampler) -> tuple[Question, list[Fact], list[str]]:
    """A question, its facts, and the simple questions for them, one after the other."""
    question, facts = sampler.multi_hop()
    if sampler.rng.random() < 0.25:
        fact = sampler.fact()
        return sampler.simple(sampler.world, fact), [fact], [ask(fact.relation, fact.subject)]
    return question, facts, filled(question.sub_questions, question.sub_answers)


def _facts(question: Question, answers: list[str]) -> list[str]:
    """The sub-questions and their answers as a program shows them."""
    asked = filled(question.sub_questions, answers)
    return [f"{text} = {found}" for text, found in zip(asked, answers, strict=True)]


def _plan(start: bool) -> dict[Callable[[LessonSampler], PromptCompletion], tuple[float, float, int]]:
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


def _judging_plan(start: bool) -> dict[Callable[[LessonSampler], PromptCompletion], tuple[float, float, int]]:
    """What a T5 reads, in the form of `_plan`.

    Its judges are asked without examples, and it answers no questions: it recalls to have something to know. Relevance
    comes first and alone: it takes 0.8M tokens so, and with the others its accuracy was still at chance after 6M.
    """
    return {
        judge_passage: (22, 0, 1),
        **({} if start else {copy: (5, 0, 1), recall: (60, 0, 1), judge_self: (8, 0, 1), decompose: (10, 0, 1)}),
    }
