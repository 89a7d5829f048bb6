"""What the pocket Llama can do, measured on questions that its training never saw."""

from typing import TYPE_CHECKING, Any

from data.world import HOME_REGIONS
from data.world_questions import make_question
from lm.pocket.batches import ANSWER_WEIGHT, collate, encode
from lm.pocket.lessons import Lesson, School, pair

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast


def report(
    model: "LlamaForCausalLM", tokenizer: "PreTrainedTokenizerFast", n: int = 200, regions: int = HOME_REGIONS
) -> dict[str, dict[str, float]]:
    """How often each skill is right on questions that training never saw, decoded greedily.

    Returns:
        skill -> {"right": share of lessons whose whole completion is right, "n": how many were tried}.
    """
    import torch

    model.eval()
    results: dict[str, dict[str, float]] = {}
    for name, lessons in exam(n, regions).items():
        rows = sorted((encode(tokenizer, lesson, last_only=True) for lesson in lessons), key=lambda row: len(row[0]))
        right = 0
        for start in range(0, len(rows), 32):
            ids, weights = collate(rows[start : start + 32])
            with torch.inference_mode():
                guessed = model(input_ids=ids.to(model.device), use_cache=False).logits.argmax(-1).cpu()
            # Right under teacher forcing at every position is the same as right when decoding greedily.
            asked = weights[:, 1:] == ANSWER_WEIGHT
            right += int(((guessed[:, :-1] == ids[:, 1:]) | ~asked).all(1).sum())
        results[name] = {"right": round(right / len(rows), 3), "n": len(rows)}
    model.train()
    return results


def exam(n: int, regions: int = HOME_REGIONS) -> dict[str, list[Lesson]]:
    """The questions of the report: recall from the home world, everything else from worlds made for the exam."""
    school = School("exam", regions)

    def ask(lesson: Any, *arguments: Any) -> list[Lesson]:
        made = []
        for _ in range(n):
            school.refresh()
            made.append(lesson(*arguments))
        return made

    def reading(passages: int) -> Lesson:
        while True:
            lesson = school.read()
            if lesson[0][0].count("\npassage: ") == passages:
                return lesson

    def composing(kind: str) -> Lesson:
        while True:
            lesson = school.compose()
            yes_no = lesson[0][1] in (" yes", " no")
            earlier = "earlier" in lesson[0][0]
            found = "yesno" if yes_no else "comparison" if earlier else "bridge"
            if found == kind and lesson[0][1] != " unknown":
                return lesson

    return {
        "recall of taught facts": ask(school.recall),
        "recall of untaught facts": ask(lambda: _untaught(school)),
        "read, one passage": ask(reading, 1),
        "read, five passages": ask(reading, 5),
        "relevance": ask(lambda: [school.verdict_on_passage()]),
        "relevance after four examples": ask(lambda: [school.verdict_on_passage() for _ in range(5)]),
        "decomposition": ask(lambda: [school.decomposition()]),
        "compose, bridge": ask(composing, "bridge"),
        "compose, comparison": ask(composing, "comparison"),
        "compose, yes/no": ask(composing, "yesno"),
    }


def _untaught(school: School) -> Lesson:
    home = school.chance.choice(school.home)
    fact = school.chance.choice([fact for fact in home.facts.values() if not fact.taught])
    question = make_question(home, "lookup", school.chance, fact)
    return [pair({"question": question.question}, {"answer": question.answer})]
