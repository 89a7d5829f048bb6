"""Where the pocket Llama's lessons take their matter from: the home world, worlds nobody has seen, and teachers."""

import random
from collections.abc import Collection

from raisf.data.world.files import SPLITS
from raisf.data.world.generator import HOME_REGIONS, HOME_SEED, Fact, Region, region
from raisf.data.world.questions import MULTI_HOP, Question, question_and_facts

PromptCompletion = tuple[str, str]
Lesson = list[PromptCompletion]
Fields = dict[str, str | list[str]]

# Seeds below this belong to worlds that people make; those above are for pretraining alone.
FRESH_SEEDS = 1_000_000_000

# Judgements are taught by teachers who differ, as people who label data do, and a lesson is by one teacher throughout.
# LENIENT of them call a passage relevant that helps only a part of the way or is about somebody of the same name;
# BOASTFUL ones say that they know the answer to any simple question. Without examples the model must guess the teacher,
# and guesses the usual one; examples show whose judgement is wanted. So its judges are honest but loose out of the box,
# and there is something for demonstrations, weights and thresholds to improve.
LENIENT, BOASTFUL = 0.6, 0.6
# Some teachers use other words, so that a verdict's word must be read off the examples and is not a matter of habit.
OTHER_WORDS, SWAPPED = 0.25, 0.08
WORDS = (("yes", "no"), ("no", "yes"), ("A", "B"), ("B", "A"), ("good", "bad"), ("left", "right"))


class LessonSampler:
    """Gives the matter of lessons, from a seed.

    Args:
        seed: Decides everything that follows.
        regions: How many of the home world's regions are taught by heart.

    Attributes:
        world: A region of a world that nobody has seen; reading, judging and composing are taught on such ones, so that
            they are skills and not memories.
        taught: The facts of the home world that are to be known by heart, each with its region.
        strict, truthful: What the present teacher is.
        sorting: Two kinds of entity, and the words by which the present teacher tells them apart.
    """

    def __init__(self, seed: int | str, regions: int = HOME_REGIONS) -> None:
        self.home = [region(HOME_SEED, number) for number in range(regions)]
        self.taught = [(home, fact) for home in self.home for fact in home.facts.values() if fact.taught]
        # What one knows oneself is judged on the training regions only: what the judge says elsewhere is generalised.
        self.training = [home for home in self.home if SPLITS[home.number % len(SPLITS)] == "train"]
        self.begin(seed)

    def begin(self, seed: int | str) -> None:
        """Starts over from another seed; the home world stays."""
        self.rng = random.Random(f"school/{seed}")
        self.refresh()
        self.meet_teacher(1)

    def refresh(self) -> None:
        """Moves on to a world nobody has seen."""
        self.world = region(FRESH_SEEDS + self.rng.randrange(FRESH_SEEDS), self.rng.randrange(200))

    def meet_teacher(self, pairs: int) -> None:
        """Draws the teacher of a lesson of so many pairs; only one with examples can use words of his own."""
        self.strict, self.truthful = self.rng.random() >= LENIENT, self.rng.random() >= BOASTFUL
        draw = self.rng.random() if pairs > 1 else 1.0
        self.swapped = draw < SWAPPED
        self.words = self.rng.choice(WORDS) if SWAPPED <= draw < SWAPPED + OTHER_WORDS else None
        self.sorting = tuple(self.rng.sample(list(self.world.entities), 2)), self.rng.choice(WORDS)

    def word(self, verdict: bool, yes: str, no: str) -> str:
        """The present teacher's word for a verdict."""
        yes, no = self.words or ((no, yes) if self.swapped else (yes, no))
        return yes if verdict else no

    def fact(self) -> Fact:
        """Any fact of the present world."""
        return self.rng.choice(list(self.world.facts.values()))

    def simple(self, where: Region, fact: Fact) -> Question:
        """A question for one fact, sometimes by its subject's alias."""
        trivia = fact.subject in where.aliases and self.rng.random() < 0.3
        return question_and_facts(where, "trivia" if trivia else "lookup", self.rng, fact)[0]

    def multi_hop(self, kind: str = "") -> tuple[Question, list[Fact]]:
        """A question of more than one fact about the present world, and its facts in order."""
        return question_and_facts(self.world, kind or self.rng.choice(MULTI_HOP), self.rng)

    def known_multi_hop(self) -> tuple[Question, list[Fact]] | None:
        """A question of more than one fact, all taught, about a training region; None if none was met."""
        home = self.rng.choice(self.training)
        for _ in range(20):
            question, facts = question_and_facts(home, self.rng.choice(MULTI_HOP), self.rng)
            if question.known:
                return question, facts
        return None

    def passage(self, fact: Fact) -> tuple[str, str]:
        """The passage that states a fact, as the compact adapter shows it, and the sentence that does, by name.

        A quotation that keeps "It" says little alone, and is hard to learn: its first word hangs on the words after it.
        """
        facts = self.world.passages[fact.pid]
        # The encyclopedia leaves out one fact in ten.
        facts = [other for other in facts if other is fact or self.rng.random() < 0.9]
        sentences = self.world.write(facts, self.rng)
        return f"{fact.subject} | {' '.join(told for told, _ in sentences)}", sentences[facts.index(fact)][1]

    def distractors(self, fact: Fact, count: int, but: Collection[str] = ()) -> list[Fact]:
        """Facts of other passages, which do not answer: most state the same relation of somebody else."""
        found: list[Fact] = []
        same_kind = self.world.entities[self.world.kinds[fact.subject]]
        own = [other for other in self.world.about(fact.subject) if other.pid != fact.pid]
        pids = {fact.pid, *but}
        while len(found) < count:
            draw = self.rng.random()
            if draw < 0.66:
                other = self.world.fact(self.rng.choice(same_kind), fact.relation.name)
            elif draw < 0.84 and own:
                other = self.rng.choice(own)
            else:
                other = self.fact()
            if other.pid not in pids:
                pids.add(other.pid)
                found.append(other)
        return found

    def look_alike(self, fact: Fact) -> bool:
        """Whether a fact is about somebody who shares a name with another of the region."""
        stem = fact.subject.split()[-1]
        return any(stem in name and name != fact.subject for name in self.world.entities["person"])


def prompt_completion(inputs: Fields, outputs: Fields) -> PromptCompletion:
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
