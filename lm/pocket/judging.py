"""The lessons in judging: passages, oneself, answers; in the eyes of a teacher who may be lenient or boastful."""

from raisf.data.world.generator import Fact
from raisf.data.world.questions import Question
from raisf.lm.pocket.sampler import LessonSampler, PromptCompletion, prompt_completion


def judge_passage(sampler: LessonSampler) -> PromptCompletion:
    """Whether a passage is relevant and sufficient, in the eyes of a strict or a lenient teacher."""
    draw, lenient = sampler.rng.random(), not sampler.strict
    fact = sampler.fact()
    question = sampler.simple(sampler.world, fact)
    if draw < 0.5:
        shown, relevant = fact, True
    elif draw < 0.62:
        # A passage on the way to the answer of a question of several facts.
        question, facts = sampler.multi_hop()
        shown, relevant = sampler.rng.choice(facts), lenient
    else:
        shown = sampler.distractors(fact, 1)[0]
        relevant = lenient and (
            shown.subject == fact.subject or (sampler.look_alike(fact) and sampler.look_alike(shown))
        )
    text = sampler.passage(shown)[0]
    verdict = sampler.word(relevant, "relevant", "irrelevant")
    return prompt_completion({"question": question.question, "passage": text}, {"verdict": verdict})


def judge_passages(sampler: LessonSampler) -> PromptCompletion:
    """The numbers of the passages that suffice, or none."""
    fact = sampler.fact()
    question, gold = (sampler.simple(sampler.world, fact), [fact])
    if sampler.rng.random() < 0.2:
        question, facts = sampler.multi_hop()
        fact, gold = facts[0], []
    return _chosen(sampler, question, fact, gold, "relevant_ids")


def choose_passages(sampler: LessonSampler) -> PromptCompletion:
    """The numbers of the passages that help, if only a part of the way, or none."""
    if sampler.rng.random() < 0.4:
        fact = sampler.fact()
        return _chosen(sampler, sampler.simple(sampler.world, fact), fact, [fact], "helpful_ids")
    question, facts = sampler.multi_hop()
    return _chosen(sampler, question, sampler.rng.choice(facts), facts, "helpful_ids")


def judge_self(sampler: LessonSampler) -> PromptCompletion:
    """Whether the answer is known by heart, in the words of a truthful or a boastful teacher."""
    question, known = _asked_of_self(sampler)
    return prompt_completion({"question": question}, {"verdict": sampler.word(known, "know", "unknown")})


def judge_need(sampler: LessonSampler) -> PromptCompletion:
    """Whether looking something up would help: not where the answer is known."""
    question, known = _asked_of_self(sampler)
    return prompt_completion({"question": question}, {"retrieve": sampler.word(not known, "yes", "no")})


def judge_support(sampler: LessonSampler) -> PromptCompletion:
    """How far a passage supports an answer."""
    draw, fact = sampler.rng.random(), sampler.fact()
    question, answer, shown = sampler.simple(sampler.world, fact).question, fact.object, fact
    if draw < 0.35:
        support = "fully"
    elif draw < 0.55:
        made, facts = sampler.multi_hop()
        question, answer, shown, support = made.question, made.answer, sampler.rng.choice(facts), "partially"
    else:
        support = "none"
        other = sampler.distractors(fact, 1)[0]
        if sampler.rng.random() < 0.5:
            shown = other
        else:
            answer = other.object if other.object != fact.object else "unknown"
    return prompt_completion(
        {"question": question, "passage": sampler.passage(shown)[0], "answer": answer}, {"support": support}
    )


def judge_use(sampler: LessonSampler) -> PromptCompletion:
    """How useful an answer is: one of the right kind is, "unknown" or one of another kind is not."""
    question, (*_, fact) = sampler.multi_hop(sampler.rng.choice(("bridge", "inference", "chain")))
    if sampler.rng.random() < 0.5:
        question = sampler.simple(sampler.world, fact)
    answer, usefulness = fact.object, "5"
    if sampler.rng.random() < 0.5:
        other = sampler.fact()
        answer = other.object if other.relation.target != fact.relation.target else "unknown"
        usefulness = "1"
    return prompt_completion({"question": question.question, "answer": answer}, {"usefulness": usefulness})


def _chosen(sampler: LessonSampler, question: Question, fact: Fact, gold: list[Fact], name: str) -> PromptCompletion:
    """Passages, those of `gold` among others like `fact`'s (left out in one of four), and the numbers of the gold."""
    if sampler.rng.random() < 0.25:
        gold = []
    told = {one.pid: sampler.passage(one)[0] for one in gold}
    others = sampler.distractors(fact, sampler.rng.randint(1, 5 - min(4, len(told))), set(told))
    texts = [*told.values(), *(sampler.passage(other)[0] for other in others)]
    sampler.rng.shuffle(texts)
    numbers = [str(texts.index(text) + 1) for text in told.values()]
    return prompt_completion({"question": question.question, "passages": texts}, {name: sorted(numbers)})


def _asked_of_self(sampler: LessonSampler) -> tuple[str, bool]:
    """A question, and whether the present teacher says that it is known."""
    draw = sampler.rng.random()
    if draw < 0.15:
        return sampler.multi_hop()[0].question, False
    where = sampler.rng.choice(sampler.training) if draw < 0.85 else sampler.world
    fact = sampler.rng.choice(list(where.facts.values()))
    return sampler.simple(where, fact).question, fact.taught or not sampler.truthful
