"""The lessons in judging: passages, oneself, answers; in the eyes of a teacher who may be lenient or boastful."""

from data.world import Fact
from data.world_questions import Question
from lm.pocket.school import Pair, School, pair


def judge_passage(school: School) -> Pair:
    """Whether a passage is relevant and sufficient, in the eyes of a strict or a lenient teacher."""
    draw, lenient = school.chance.random(), not school.strict
    fact = school.fact()
    question = school.simple(school.world, fact)
    if draw < 0.5:
        shown, relevant = fact, True
    elif draw < 0.62:
        # A passage on the way to the answer of a question of several facts.
        question, facts = school.multi_hop()
        shown, relevant = school.chance.choice(facts), lenient
    else:
        shown = school.distractors(fact, 1)[0]
        relevant = lenient and (shown.subject == fact.subject or (school.look_alike(fact) and school.look_alike(shown)))
    text = school.passage(shown)[0]
    verdict = school.word(relevant, "relevant", "irrelevant")
    return pair({"question": question.question, "passage": text}, {"verdict": verdict})


def judge_passages(school: School) -> Pair:
    """The numbers of the passages that suffice, or none."""
    fact = school.fact()
    question, gold = (school.simple(school.world, fact), [fact])
    if school.chance.random() < 0.2:
        question, facts = school.multi_hop()
        fact, gold = facts[0], []
    return _chosen(school, question, fact, gold, "relevant_ids")


def choose_passages(school: School) -> Pair:
    """The numbers of the passages that help, if only a part of the way, or none."""
    if school.chance.random() < 0.4:
        fact = school.fact()
        return _chosen(school, school.simple(school.world, fact), fact, [fact], "helpful_ids")
    question, facts = school.multi_hop()
    return _chosen(school, question, school.chance.choice(facts), facts, "helpful_ids")


def judge_self(school: School) -> Pair:
    """Whether the answer is known by heart, in the words of a truthful or a boastful teacher."""
    question, known = _asked_of_self(school)
    return pair({"question": question}, {"verdict": school.word(known, "know", "unknown")})


def judge_need(school: School) -> Pair:
    """Whether looking something up would help: not where the answer is known."""
    question, known = _asked_of_self(school)
    return pair({"question": question}, {"retrieve": school.word(not known, "yes", "no")})


def judge_support(school: School) -> Pair:
    """How far a passage supports an answer."""
    draw, fact = school.chance.random(), school.fact()
    question, answer, shown = school.simple(school.world, fact).question, fact.object, fact
    if draw < 0.35:
        support = "fully"
    elif draw < 0.55:
        made, facts = school.multi_hop()
        question, answer, shown, support = made.question, made.answer, school.chance.choice(facts), "partially"
    else:
        support = "none"
        other = school.distractors(fact, 1)[0]
        if school.chance.random() < 0.5:
            shown = other
        else:
            answer = other.object if other.object != fact.object else "unknown"
    return pair({"question": question, "passage": school.passage(shown)[0], "answer": answer}, {"support": support})


def judge_use(school: School) -> Pair:
    """How useful an answer is: one of the right kind is, "unknown" or one of another kind is not."""
    question, (*_, fact) = school.multi_hop(school.chance.choice(("bridge", "inference", "chain")))
    if school.chance.random() < 0.5:
        question = school.simple(school.world, fact)
    answer, usefulness = fact.object, "5"
    if school.chance.random() < 0.5:
        other = school.fact()
        answer = other.object if other.relation.target != fact.relation.target else "unknown"
        usefulness = "1"
    return pair({"question": question.question, "answer": answer}, {"usefulness": usefulness})


def _chosen(school: School, question: Question, fact: Fact, gold: list[Fact], name: str) -> Pair:
    """Passages, those of `gold` among others like `fact`'s (left out in one of four), and the numbers of the gold."""
    if school.chance.random() < 0.25:
        gold = []
    told = {one.pid: school.passage(one)[0] for one in gold}
    others = school.distractors(fact, school.chance.randint(1, 5 - min(4, len(told))), set(told))
    texts = [*told.values(), *(school.passage(other)[0] for other in others)]
    school.chance.shuffle(texts)
    numbers = [str(texts.index(text) + 1) for text in told.values()]
    return pair({"question": question.question, "passages": texts}, {name: sorted(numbers)})


def _asked_of_self(school: School) -> tuple[str, bool]:
    """A question, and whether the present teacher says that it is known."""
    draw = school.chance.random()
    if draw < 0.15:
        return school.multi_hop()[0].question, False
    where = school.chance.choice(school.training) if draw < 0.85 else school.world
    fact = school.chance.choice(list(where.facts.values()))
    return school.simple(where, fact).question, fact.taught or not school.truthful
