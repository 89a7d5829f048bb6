"""What a pocket model can do, measured on questions that its training never saw."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raisf.data.world.files import SPLITS
from raisf.data.world.generator import HOME_REGIONS, ask, state
from raisf.lm.pocket import lessons as on
from raisf.lm.pocket.batches import collate, encode, said
from raisf.lm.pocket.build import BEGIN
from raisf.lm.pocket.sampler import Lesson, LessonSampler, PromptCompletion, prompt_completion

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

# What stands before an answer that something else comes before.
ANSWER = "\nanswer: "
# The skills of a T5, which reads no examples and writes no answers to read from.
JUDGING = ("recall, taught facts", "recall, untaught facts", "judge relevance", "judge knowledge", "decompose")
# How many examples the judges are shown in the report, besides none.
EXAMPLES = 8


def report(
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerFast",
    n: int = 500,
    regions: int = HOME_REGIONS,
    answers: bool = True,
) -> dict[str, dict[str, Any]]:
    """How often each skill is right on questions that training never saw, decoded greedily.

    Args:
        model: Whose skills; of a T5 those of `JUDGING`.
        tokenizer: Its words.
        n: Questions a skill.
        regions: How many regions of the home world it was taught.
        answers: Whether the answers are measured too where something comes before them.

    Returns:
        skill -> {"right": share of lessons whose whole completion is right, "low", "high": its 95% interval (Wilson
        1927), "n": how many were tried}. Where evidence or reasoning comes before the answer there is also "answer":
        the same of the answer alone. Judges, whose gold is a strict and truthful teacher's, have "auroc": how well the
        first word's probability ranks, whatever the threshold.
    """
    model.eval()
    results: dict[str, dict[str, Any]] = {}
    of = exam(n, regions)
    for name in JUDGING if model.config.is_encoder_decoder else of:
        tests = of[name]
        words = _judges_words(tokenizer, tests) if name.startswith("judge") else None
        right, leanings = _completed(model, tokenizer, tests, words)
        results[name] = _share(sum(right), n)
        if answers and all(ANSWER in test[-1][1] for test in tests):
            wrong = [test for test, all_right in zip(tests, right, strict=True) if not all_right]
            results[name]["answer"] = _share(sum(right) + _answered(model, tokenizer, wrong), n)
        if words:
            yes = [test[-1][1].split()[0] in ("know", "relevant") for test in tests]
            results[name]["auroc"] = round(_auroc(leanings, yes), 3)
    model.train()
    return results


def exam(n: int, regions: int = HOME_REGIONS) -> dict[str, list[Lesson]]:
    """The questions of the report: memory about the home world, everything else about worlds made for the exam.

    What it takes from the home world's multi-hop questions and self-judgements is about the regions kept for selection
    and testing, which training asks neither about.
    """
    sampler = LessonSampler("exam", regions)
    sampler.training = [home for home in sampler.home if SPLITS[home.number % len(SPLITS)] != "train"] or sampler.home

    def tests(
        maker: Callable[[LessonSampler], PromptCompletion],
        pairs: int = 1,
        wanted: Callable[[PromptCompletion], bool] = lambda _: True,
    ) -> list[Lesson]:
        made = []
        for _ in range(n):
            sampler.refresh()
            sampler.strict, sampler.truthful, sampler.words, sampler.swapped = True, True, None, False
            while not wanted((lesson := [maker(sampler) for _ in range(pairs)])[-1]):
                sampler.refresh()
            made.append(lesson)
        return made

    return {
        "recall, taught facts": tests(on.recall),
        "recall, untaught facts": tests(_untaught),
        "read, one passage": tests(on.read, wanted=lambda made: made[0].count("\npassage: ") == 1),
        "read, five passages": tests(on.read, wanted=lambda made: made[0].count("\npassage: ") == 5),
        "read, several hops": tests(on.read_on),
        "judge relevance": tests(on.judge_passage),
        f"judge relevance, {EXAMPLES} examples": tests(on.judge_passage, EXAMPLES + 1),
        "judge knowledge": tests(on.judge_self),
        f"judge knowledge, {EXAMPLES} examples": tests(on.judge_self, EXAMPLES + 1),
        "decompose": tests(on.decompose),
        "compose, bridge": tests(on.compose, wanted=lambda made: _composed(made) == "chained"),
        "compose, comparison": tests(on.compose, wanted=lambda made: _composed(made) == "comparison"),
        "compose, yes/no": tests(on.compose, wanted=lambda made: _composed(made) == "yesno"),
        "reason, known facts": tests(_known_reasoning),
        "reason from passages": tests(on.reason_from_passages),
        "next thought": tests(on.think_on),
        "follow-up question": tests(on.follow_up),
        "next action": tests(on.act),
        "write a passage, taught": tests(_passage_of_taught),
        "passages that suffice": tests(on.judge_passages),
        "passages that help": tests(on.choose_passages),
        "support": tests(on.judge_support),
        "usefulness": tests(on.judge_use),
    }


def draw_curves(manifest: dict[str, Any], path: Path) -> None:
    """Draws the learning curves of a training as a PNG: the loss, and each skill's share right."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.7))
    left.plot([p["tokens"] / 1e6 for p in manifest["curve"]], [p["loss"] for p in manifest["curve"]], linewidth=0.8)
    left.set(xlabel="million tokens", ylabel="loss (nats a weighted token)", yscale="log")
    ends = {skill: one["right"] for skill, one in manifest["report"].items()}
    for number, skill in enumerate(ends):
        points = [(p["tokens"] / 1e6, p[skill]) for p in manifest["skills"]] + [(manifest["tokens"] / 1e6, ends[skill])]
        style = ("-", "--", ":")[number // 10 % 3]
        right.plot(*zip(*points, strict=True), style, label=skill, linewidth=1.2)
    right.set(xlabel="million tokens", ylabel="share right", ylim=(-0.02, 1.02))
    right.legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(path, dpi=110)


def _composed(made: PromptCompletion) -> str:
    answer = made[1].strip()
    if answer == "unknown":
        return ""
    if answer in ("yes", "no"):
        return "yesno"
    return "comparison" if answer in made[0].split("\n")[0] else "chained"


def _untaught(sampler: LessonSampler) -> PromptCompletion:
    home = sampler.rng.choice(sampler.home)
    fact = sampler.rng.choice([fact for fact in home.facts.values() if not fact.taught])
    return prompt_completion({"question": sampler.simple(home, fact).question}, {"answer": fact.object})


def _passage_of_taught(sampler: LessonSampler) -> PromptCompletion:
    home, fact = sampler.rng.choice(sampler.taught)
    text = " ".join(state(other) for other in home.passages[fact.pid])
    return prompt_completion({"question": ask(fact.relation, fact.subject)}, {"background": text})


def _known_reasoning(sampler: LessonSampler) -> PromptCompletion:
    while (known := sampler.known_multi_hop()) is None:
        pass
    question, facts = known
    reasoning = " ".join(state(fact) for fact in facts)
    return prompt_completion({"question": question.question}, {"reasoning": reasoning, "answer": question.answer})


def _completed(
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerFast",
    tests: list[Lesson],
    words: tuple[int, int] | None,
) -> tuple[list[bool], list[float]]:
    """Of each test, whether the whole completion is right, and how far its first word leans to the first of `words`."""
    import torch

    rows = [encode(tokenizer.backend_tokenizer, lesson, last_only=True) for lesson in tests]
    order = sorted(range(len(rows)), key=lambda i: len(rows[i][0]))
    right, leanings = [False] * len(rows), [0.0] * len(rows)
    for start in range(0, len(rows), 32):
        batch = order[start : start + 32]
        ids, weights = collate([rows[i] for i in batch])
        with torch.inference_mode():
            found = said(model, ids.to(model.device), weights.to(model.device))
        logits, targets, weights = (tensor.cpu() for tensor in found)
        # Right under teacher forcing at every position is the same as right when decoding greedily.
        asked = weights == weights.amax(1, keepdim=True)
        same = ((logits.argmax(-1) == targets) | ~asked).all(1).tolist()
        for row, i in enumerate(batch):
            right[i] = same[row]
            if words:
                first = logits[row, int(asked[row].float().argmax())].float()
                leanings[i] = float(first[words[0]] - first[words[1]])
    return right, leanings


def _answered(model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerFast", tests: list[Lesson]) -> int:
    """On how many tests the answer is right, whatever was written before it."""
    import torch

    asked = sorted(((BEGIN + prompt, completion) for ((prompt, completion),) in tests), key=lambda one: len(one[0]))
    right = 0
    for start in range(0, len(asked), 32):
        prompts, completions = zip(*asked[start : start + 32], strict=True)
        batch = tokenizer(
            list(prompts), return_tensors="pt", padding=True, padding_side="left", add_special_tokens=False
        )
        longest = max(len(tokenizer.encode(completion)) for completion in completions) + 8
        with torch.inference_mode():
            written = model.generate(**batch.to(model.device), max_new_tokens=longest, do_sample=False)  # type: ignore[operator]
        texts = tokenizer.batch_decode(written[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)
        right += sum(
            ANSWER in mine and mine.split(ANSWER)[1].strip() == gold.split(ANSWER)[1].strip()
            for mine, gold in zip(texts, completions, strict=True)
        )
    return right


def _judges_words(tokenizer: "PreTrainedTokenizerFast", tests: list[Lesson]) -> tuple[int, int]:
    """The first tokens of the positive and the negative verdict."""
    verdicts = (" know", " unknown") if "know" in tests[0][-1][1] else (" relevant", " irrelevant")
    first = [tokenizer.encode(verdict, add_special_tokens=False)[0] for verdict in verdicts]
    return first[0], first[1]


def _share(right: int, n: int) -> dict[str, Any]:
    from scipy.stats import binomtest

    low, high = binomtest(right, n).proportion_ci(method="wilson")
    return {"right": round(right / n, 3), "low": round(float(low), 3), "high": round(float(high), 3), "n": n}


def _auroc(scores: list[float], positive: list[bool]) -> float:
    """The chance that a positive is scored above a negative, ties counting half; as good as none without both."""
    from scipy.stats import mannwhitneyu

    yes = [score for score, is_positive in zip(scores, positive, strict=True) if is_positive]
    no = [score for score, is_positive in zip(scores, positive, strict=True) if not is_positive]
    return float(mannwhitneyu(yes, no).statistic) / (len(yes) * len(no)) if yes and no else 0.5
