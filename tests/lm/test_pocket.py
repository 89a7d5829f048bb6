"""The pocket Llama: its weights must be what their manifest says, and its lessons what the adapter will ask it."""

import re
from pathlib import Path
from typing import Any

import dspy
import pytest

import lm.pocket
from data.errors import InputError
from data.files import read_json, sha256_file
from lm.adapter import CompactAdapter
from lm.pocket import lessons
from lm.pocket.batches import BATCH_TOKENS, LENGTHS, collate, cut
from lm.pocket.school import School
from lm.pocket.train import train
from lm.pocket.trainer import Trainer
from signatures import answers, critique, judges, reasoning

LESSONS = {
    "recall": answers.DirectAnswer,
    "guess": answers.DirectAnswer,
    "recall_next": answers.ComposedAnswer,
    "write_passage": reasoning.WrittenPassage,
    "reason": reasoning.Reasoning,
    "read": answers.GroundedAnswer,
    "read_on": answers.GroundedAnswer,
    "reason_from_passages": reasoning.GroundedReasoning,
    "think_on": reasoning.NextThought,
    "judge_passage": judges.PassageRelevance,
    "judge_passages": judges.ListwiseRelevance,
    "choose_passages": reasoning.HelpfulPassages,
    "judge_self": judges.SelfKnowledge,
    "judge_need": critique.RetrievalNeed,
    "judge_support": critique.Support,
    "judge_use": critique.Usefulness,
    "decompose": judges.Decomposition,
    "compose": answers.ComposedAnswer,
    "follow_up": reasoning.FollowUp,
    "act": reasoning.NextAction,
}


@pytest.mark.parametrize("name", LESSONS)
def test_lessons_are_written_as_the_adapter_asks(name: str) -> None:
    """A lesson in another format would teach a skill that no program could call on."""
    signature: type[dspy.Signature] = LESSONS[name]
    adapter = CompactAdapter(instructions=False, end="<|end|>\n")
    school = School("format")
    for _ in range(30):
        prompt, completion = getattr(lessons, name)(school)
        inputs: dict[str, str | list[str]] = {}
        for line in prompt.split("\n")[:-1]:
            field, value = line.split(": ", 1)
            if field in signature.input_fields:
                inputs[field] = value
            else:
                inputs.setdefault(f"{field}s", []).append(value)  # type: ignore[union-attr]
        assert adapter.prompt(signature, inputs) == prompt
        outputs = adapter.parse(signature, completion)
        assert adapter.completion(signature, outputs) == completion + "<|end|>\n"


def test_what_the_judges_are_measured_on_is_not_taught() -> None:
    """Else a know-judge measured on the test split would be reciting, and its multi-hop questions be known by heart."""
    school = School("isolation")
    assert {home.number % 6 for home in school.training} == {0, 1, 2}
    # Names of two words belong to one entity alone; a town may be called like somebody's family.
    names = {name for home in school.home for name in home.kinds if home.number % 6 > 2 and " " in name}
    for maker in (lessons.judge_self, lessons.judge_need, lessons.reason, lessons.recall_next):
        for _ in range(300):
            prompt, completion = maker(school)
            if maker is lessons.reason and completion.count(". ") == 0:
                continue  # one fact, known by heart: the home world's facts are to be known everywhere
            assert not any(name in prompt + completion for name in names), maker


def test_a_lesson_is_by_one_teacher_and_only_examples_can_change_the_words() -> None:
    """Without examples a verdict's word must be the signature's, or zero-shot judging would be guessing words."""
    school = School("teachers")
    for _ in range(200):
        school.meet_teacher(1)
        assert lessons.judge_passage(school)[1] in (" relevant", " irrelevant")
    met = set()
    for _ in range(200):
        school.meet_teacher(6)
        said = {lessons.judge_passage(school)[1] for _ in range(6)}
        assert len(said) <= 2
        met |= said
    assert met > {" relevant", " irrelevant"}


def test_batches_have_few_shapes_and_lose_little() -> None:
    """Hundreds of shapes halved the speed of training; dropped rows would be lessons not taught."""
    school = School("batches")
    rows = [([1] * school.chance.randint(5, 400), [False] * 400) for _ in range(2000)]
    rows = [(ids, answers[: len(ids)]) for ids, answers in rows]
    batches = list(cut(rows))
    assert sum(map(len, batches)) > 0.97 * len(rows)
    shapes = {tuple(collate(batch)[0].shape) for batch in batches}
    assert len(shapes) <= 2 * len(LENGTHS)
    assert all(rows * length <= BATCH_TOKENS for rows, length in shapes)
    assert sum(len(ids) for ids, _ in rows) > 0.8 * sum(collate(batch)[0].numel() for batch in batches)


def test_the_weights_are_the_ones_of_the_manifest() -> None:
    manifest = read_json(lm.pocket.path() / "manifest.json")
    weights = lm.pocket.path() / "model.safetensors"
    assert sha256_file(weights) == manifest["weights_sha256"]
    assert weights.stat().st_size < 20_000_000
    assert manifest["parameters"] < 10_000_000


def test_the_weights_reach_their_report() -> None:
    """On a sample of the exam, within what chance allows a sample to differ."""
    from transformers import AutoTokenizer, LlamaForCausalLM

    from lm.pocket.report import report

    model = LlamaForCausalLM.from_pretrained(lm.pocket.path(), dtype="float32")
    tokenizer = AutoTokenizer.from_pretrained(lm.pocket.path())
    claimed = read_json(lm.pocket.path() / "manifest.json")["report"]
    measured = report(model, tokenizer, n=60)
    assert measured.keys() == claimed.keys()
    for skill, result in measured.items():
        assert abs(result["right"] - claimed[skill]["right"]) < 0.2, skill
    assert measured["recall, taught facts"]["right"] > 0.9
    assert measured["recall, untaught facts"]["right"] < 0.1


def small(out: Path, **options: object) -> dict:
    settings: dict = {"tokens": 80_000, "size": "tiny", "threads": 1, "regions": 6, "exam": 2, "progress": False}
    return train(out, **settings | options)


def test_a_killed_training_goes_on_and_ends_with_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else an hour's training would be lost to a closed laptop, or its result depend on when it was closed."""
    monkeypatch.setattr("lm.pocket.train.SAVE_SECONDS", 0)
    monkeypatch.setattr("lm.pocket.batches.CHUNK_LESSONS", 150)
    whole = small(tmp_path / "whole")

    step, steps = Trainer.step, []

    def stopped(self: Trainer, *batch: Any) -> float:
        if len(steps) == 7:
            raise KeyboardInterrupt
        steps.append(batch)
        return step(self, *batch)

    monkeypatch.setattr(Trainer, "step", stopped)
    with pytest.raises(KeyboardInterrupt):
        small(tmp_path / "halves")
    assert (tmp_path / "halves.unfinished" / "at.json").is_file()
    monkeypatch.setattr(Trainer, "step", step)
    with pytest.raises(InputError, match="unfinished training with other settings"):
        small(tmp_path / "halves", seed=1)
    resumed = small(tmp_path / "halves")
    assert resumed["weights_sha256"] == whole["weights_sha256"]
    assert whole["curve"][-1]["loss"] < whole["curve"][0]["loss"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["halves", "whole"]
    assert (tmp_path / "whole" / "learning.png").read_bytes().startswith(b"\x89PNG")


def test_a_size_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=re.escape("unknown size 'huge': choose one of tiny, pocket, large")):
        train(tmp_path / "x", size="huge")
    with pytest.raises(InputError, match="less than one step"):
        train(tmp_path / "x", tokens=5)
