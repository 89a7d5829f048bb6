"""What the pocket Llama reads in pretraining: one lesson a skill, in the text format of the compact adapter.

A lesson is a list of (prompt, completion) pairs: demonstrations first, the last pair is the one that is asked. All but
recall is taught on worlds made afresh, so reading, judging, decomposing and composing are skills and not memories.
"""

import random
from collections.abc import Callable, Iterator

from data.world import HOME_REGIONS, HOME_SEED, Fact, Region, ask, region, state
from data.world_questions import KINDS, SPLITS, Question, fill, make_question

Pair = tuple[str, str]
Lesson = list[Pair]

# Seeds below this belong to worlds that people make; those above are for pretraining alone.
FRESH_SEEDS = 1_000_000_000
MULTI_HOP = tuple(kind for kind in KINDS if kind != "lookup")

# How sure the model is taught to be of itself when nobody shows it examples: it says that it knows nine in ten of the
# facts it was taught, but also six in ten of those it was not. Language models are over-confident in this way, and a
# judge that came out of pretraining perfect would leave a teleprompter nothing to improve. After demonstrations the
# verdicts it reads are true ones.
SURE_OF_TAUGHT, SURE_OF_UNTAUGHT, SURE_OF_MULTI_HOP = 0.9, 0.6, 0.3


def pair(inputs: dict[str, str | list[str]], outputs: dict[str, str | list[str]]) -> Pair:
    """A prompt and its completion as the compact adapter writes them (without instructions)."""
    lines = []
    for name, value in inputs.items():
        if isinstance(value, list):
            lines += [f"{name.removesuffix('s')}: {item}" for item in value]
        else:
            lines.append(f"{name}: {value}")
    written = {name: (" ; ".join(v) or "none") if isinstance(v, list) else v for name, v in outputs.items()}
    first, *rest = written.items()
    prompt = "\n".join([*lines, f"{first[0]}:"])
    return prompt, "\n".join([f" {first[1]}", *(f"{name}: {value}" for name, value in rest)])


class School:
    """Gives lessons, from a seed.

    Args:
        seed: Decides everything that follows.
        regions: How many of the home world's regions are taught by heart.
    """

    def __init__(self, seed: int | str, regions: int = HOME_REGIONS) -> None:
        self.chance = random.Random(f"school/{seed}")
        self.home = [region(HOME_SEED, number) for number in range(regions)]
        self.taught = [(home, fact) for home in self.home for fact in home.facts.values() if fact.taught]
        # Verdicts about oneself are taught on the training regions only: what the judge says elsewhere is generalised.
        self.training = [(home, fact) for home, fact in self.taught if SPLITS[home.number % len(SPLITS)] == "train"]
        self.refresh()

    def refresh(self) -> None:
        """Moves on to a world nobody has seen."""
        self.world = region(FRESH_SEEDS + self.chance.randrange(FRESH_SEEDS), self.chance.randrange(200))

    def lessons(self, count: int, progress: float) -> Iterator[Lesson]:
        """`count` lessons for a moment of the training, `progress` from 0 to 1."""
        plan = _plan(progress)
        makers, weights = list(plan), list(plan.values())
        for number in range(count):
            if number % 40 == 0:
                self.refresh()
            yield self.chance.choices(makers, weights)[0](self, progress)

    # The lessons, one a skill.

    def recall(self, progress: float = 1.0) -> Lesson:
        """Closed book: a fact of the home world."""
        home, fact = self.chance.choice(self.taught)
        question = make_question(home, "lookup", self.chance, fact)
        return [pair({"question": question.question}, {"answer": question.answer})]

    def guess(self, progress: float = 1.0) -> Lesson:
        """Closed book, a question nobody could know: an answer of the right kind all the same."""
        question = make_question(self.world, self.chance.choice(MULTI_HOP), self.chance)
        return [pair({"question": question.question}, {"answer": question.answer})]

    def copy(self, progress: float = 1.0) -> Lesson:
        """A drill in finding a name and copying what stands beside it; reading grows out of it."""
        kind = self.chance.choice([kind for kind, names in self.world.entities.items() if len(names) > 8])
        names = self.chance.sample(self.world.entities[kind], self.chance.randint(2, 8))
        values = [self.chance.choice(self.world.entities["person"] + self.world.entities["town"]) for _ in names]
        asked = self.chance.randrange(len(names))
        table = " ; ".join(f"{name} = {value}" for name, value in zip(names, values, strict=True))
        return [(f"{table}\n{names[asked]} =", f" {values[asked]}")]

    def read(self, progress: float = 1.0) -> Lesson:
        """One to five passages, one of which states the fact: its sentence first, then the answer."""
        most = 2 if progress < 0.1 else 3 if progress < 0.2 else 5
        fact = self.chance.choice(list(self.world.facts.values()))
        question = make_question(self.world, "lookup", self.chance, fact)
        return [self.reading(question, [fact], self.chance.randint(1, most))]

    def read_on(self, progress: float = 1.0) -> Lesson:
        """A bridge question with both passages at hand."""
        question, facts = self.multi_hop("bridge")
        return [self.reading(question, facts, self.chance.randint(2, 5))]

    def judge_passage(self, progress: float = 1.0) -> Lesson:
        """Relevant or irrelevant, a quarter of the time after demonstrations."""
        return [self.verdict_on_passage() for _ in range(1 + self.demonstrations(progress))]

    def judge_passages(self, progress: float = 1.0) -> Lesson:
        """All passages at once: the numbers of the relevant ones, or none."""
        fact = self.chance.choice(list(self.world.facts.values()))
        question = make_question(self.world, "lookup", self.chance, fact)
        passages = [self.passage(other) for other in self.distractors(fact, self.chance.randint(1, 4))]
        ids: list[str] = []
        if self.chance.random() < 0.7:
            place = self.chance.randrange(len(passages) + 1)
            passages.insert(place, self.passage(fact))
            ids = [str(place + 1)]
        return [pair({"question": question.question, "passages": passages}, {"relevant_ids": ids})]

    def judge_self(self, progress: float = 1.0) -> Lesson:
        """Known or unknown: over-confident when alone, true after demonstrations."""
        count = self.demonstrations(progress, often=0.5)
        return [self.verdict_on_self(truthful=count > 0) for _ in range(1 + count)]

    def decompose(self, progress: float = 1.0) -> Lesson:
        """The sub-questions of a question; a question that cannot be split is its own."""
        return [self.decomposition() for _ in range(1 + self.demonstrations(progress))]

    def compose(self, progress: float = 1.0) -> Lesson:
        """The answer from the sub-questions' answers; "unknown" where one that matters is missing."""
        kind = self.chance.choice(MULTI_HOP)
        question = make_question(self.world, kind, self.chance)
        answers, answer = list(question.sub_answers), question.answer
        if self.chance.random() < 0.15:
            lost = self.chance.randrange(len(answers))
            chained = kind in ("bridge", "chain")
            # Whatever leans on a missing answer is missing too.
            answers[lost:] = ["unknown"] * (len(answers) - lost) if chained else ["unknown", *answers[lost + 1 :]]
            answer = "unknown"
        asked = fill(question.sub_questions, answers)
        facts = [f"{text} = {found}" for text, found in zip(asked, answers, strict=True)]
        return [pair({"question": question.question, "facts": facts}, {"answer": answer})]

    # What the lessons are made of.

    def demonstrations(self, progress: float, often: float = 0.25) -> int:
        """How many demonstrations a lesson opens with: mostly none; one to four once the bare skill has begun."""
        return self.chance.randint(1, 4) if progress > 0.25 and self.chance.random() < often else 0

    def multi_hop(self, kind: str) -> tuple[Question, list[Fact]]:
        """A question of more than one fact about the present world, and its facts in order."""
        question = make_question(self.world, kind, self.chance)
        facts = []
        for title, pid, answer in zip(question.gold_titles, question.gold_pids, question.sub_answers, strict=True):
            about = [fact for fact in self.world.about(title) if fact.pid == pid and fact.object == answer]
            facts.append(about[0])
        return question, facts

    def passage(self, fact: Fact, sentence: str = "") -> str:
        """The passage that states a fact, wordings left to chance unless the fact's sentence is given."""
        facts = self.world.passages[fact.pid]
        stated = " ".join(sentence if sentence and other is fact else state(other, self.chance) for other in facts)
        return f"{fact.subject} | {stated}"

    def distractors(self, fact: Fact, count: int) -> list[Fact]:
        """Facts of passages that do not answer: most state the same relation of somebody else."""
        found: list[Fact] = []
        same_kind = self.world.entities[self.world.kinds[fact.subject]]
        own = [other for other in self.world.about(fact.subject) if other.pid != fact.pid]
        while len(found) < count:
            draw = self.chance.random()
            if draw < 0.65:
                other = self.world.fact(self.chance.choice(same_kind), fact.relation.name)
            elif draw < 0.8 and own:
                other = self.chance.choice(own)
            else:
                other = self.chance.choice(list(self.world.facts.values()))
            if other.pid != fact.pid and other.pid not in {one.pid for one in found}:
                found.append(other)
        return found

    def reading(self, question: Question, facts: list[Fact], passages: int) -> Pair:
        """A question over passages, `facts` stated among them; the last fact is the evidence."""
        sentence = state(facts[-1], self.chance)
        texts = {fact.pid: self.passage(fact, sentence if fact is facts[-1] else "") for fact in facts}
        for other in self.distractors(facts[-1], max(0, passages - len(texts))):
            texts.setdefault(other.pid, self.passage(other))
        shuffled = list(texts.values())
        self.chance.shuffle(shuffled)
        return pair(
            {"question": question.question, "passages": shuffled}, {"evidence": sentence, "answer": question.answer}
        )

    def verdict_on_passage(self) -> Pair:
        """A question, a passage, and whether the passage is enough to answer it."""
        relevant = self.chance.random() < 0.5
        if not relevant and self.chance.random() < 0.2:
            # A passage on the way is not sufficient for the whole question.
            question, facts = self.multi_hop(self.chance.choice(MULTI_HOP))
            text = self.passage(self.chance.choice(facts))
        else:
            fact = self.chance.choice(list(self.world.facts.values()))
            question = make_question(self.world, "lookup", self.chance, fact)
            text = self.passage(fact if relevant else self.distractors(fact, 1)[0])
        verdict = "relevant" if relevant else "irrelevant"
        return pair({"question": question.question, "passage": text}, {"verdict": verdict})

    def verdict_on_self(self, truthful: bool) -> Pair:
        """A question, and whether the model says that it knows the answer."""
        draw = self.chance.random()
        if draw < 0.45:
            question, sure, known = self._lookup(*self.chance.choice(self.training)), SURE_OF_TAUGHT, True
        elif draw < 0.85:
            fact = self.chance.choice(list(self.world.facts.values()))
            question, sure, known = self._lookup(self.world, fact), SURE_OF_UNTAUGHT, False
        else:
            question = make_question(self.world, self.chance.choice(MULTI_HOP), self.chance)
            sure, known = SURE_OF_MULTI_HOP, False
        says = known if truthful else self.chance.random() < sure
        return pair({"question": question.question}, {"verdict": "know" if says else "unknown"})

    def decomposition(self) -> Pair:
        """A question and its sub-questions."""
        question = make_question(self.world, self.chance.choices(KINDS, (1, 4, 3, 2, 2))[0], self.chance)
        subs = question.sub_questions or [question.question]
        return pair({"question": question.question}, {"sub_questions": subs})

    def _lookup(self, where: Region, fact: Fact) -> Question:
        return Question(ask(fact.relation, fact.subject, self.chance), fact.object, "lookup")


def _plan(progress: float) -> dict[Callable[[School, float], Lesson], float]:
    """The share of each lesson. Recall needs about 40 readings a fact; reading is slowest to form and costs most."""
    drill = 0.15 if progress < 0.2 else 0.03
    return {
        School.copy: drill,
        School.recall: 0.42,
        School.guess: 0.03,
        School.read: 0.26,
        School.read_on: 0.03,
        School.judge_passage: 0.13,
        School.judge_passages: 0.01,
        School.judge_self: 0.05,
        School.decompose: 0.05,
        School.compose: 0.08,
    }
