"""The pocket models: their weights must be what their manifests say, and the lessons what the adapter will ask."""

import re
from pathlib import Path
from typing import Any

import dspy
import pytest
import torch
from transformers import AutoTokenizer

from raisf.data.world.generator import HOME_REGIONS, HOME_SEED, ask
from raisf.lm import pocket
from raisf.lm.adapter import CompactAdapter
from raisf.lm.connect import connect
from raisf.lm.finetune.lora import TrainingRow
from raisf.lm.finetune.lora import train as finetune
from raisf.lm.finetune.training import Training
from raisf.lm.local.inference import load_model
from raisf.lm.local.multi_lora import TRAINING
from raisf.lm.pocket import lessons
from raisf.lm.pocket.batches import BATCH_TOKENS, LENGTHS, Batches, collate, cut, encode
from raisf.lm.pocket.build import build_model
from raisf.lm.pocket.report import report
from raisf.lm.pocket.sampler import LessonSampler
from raisf.lm.pocket.train import TOKENS, train
from raisf.lm.pocket.trainer import Trainer
from raisf.signatures import answers, critique, judges, reasoning
from raisf.utils.errors import InputError, RaisfError
from raisf.utils.files import read_json, sha256_file

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
    sampler = LessonSampler("format")
    for _ in range(30):
        prompt, completion = getattr(lessons, name)(sampler)
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
    sampler = LessonSampler("isolation")
    assert {home.number % 6 for home in sampler.training} == {0, 1, 2}
    # Names of two words belong to one entity alone; a town may be called like somebody's family.
    names = {name for home in sampler.home for name in home.kinds if home.number % 6 > 2 and " " in name}
    for maker in (lessons.judge_self, lessons.judge_need, lessons.reason, lessons.recall_next):
        for _ in range(300):
            prompt, completion = maker(sampler)
            if maker is lessons.reason and completion.count(". ") == 0:
                continue  # one fact, known by heart: the home world's facts are to be known everywhere
            assert not any(name in prompt + completion for name in names), maker


def test_a_lesson_is_by_one_teacher_and_only_examples_can_change_the_words() -> None:
    """Without examples a verdict's word must be the signature's, or zero-shot judging would be guessing words."""
    sampler = LessonSampler("teachers")
    for _ in range(200):
        sampler.meet_teacher(1)
        assert lessons.judge_passage(sampler)[1] in (" relevant", " irrelevant")
    met = set()
    for _ in range(200):
        sampler.meet_teacher(6)
        said = {lessons.judge_passage(sampler)[1] for _ in range(6)}
        assert len(said) <= 2
        met |= said
    assert met > {" relevant", " irrelevant"}


def test_batches_have_few_shapes_and_lose_little() -> None:
    """Hundreds of shapes halved the speed of training; dropped rows would be lessons not taught."""
    sampler = LessonSampler("batches")
    rows = [([1] * sampler.rng.randint(5, 400), [False] * 400) for _ in range(2000)]
    rows = [(ids, answers[: len(ids)]) for ids, answers in rows]
    batches = list(cut(rows))
    assert sum(map(len, batches)) > 0.97 * len(rows)
    shapes = {tuple(collate(batch)[0].shape) for batch in batches}
    assert len(shapes) <= 2 * len(LENGTHS)
    assert all(rows * length <= BATCH_TOKENS for rows, length in shapes)
    assert sum(len(ids) for ids, _ in rows) > 0.8 * sum(collate(batch)[0].numel() for batch in batches)


@pytest.mark.parametrize("name", pocket.WEIGHTS)
def test_the_weights_are_the_ones_of_the_manifest(name: str) -> None:
    """And were made by the recipe as it stands, so that it makes them again."""
    folder = pocket.path(name)
    manifest = read_json(folder / "manifest.json")
    assert sha256_file(folder / "model.safetensors") == manifest["weights_sha256"]
    assert (folder / "model.safetensors").stat().st_size < 5_000_000
    assert (manifest["home"], manifest["seed"]) == ({"seed": HOME_SEED, "regions": HOME_REGIONS}, 0)
    assert abs(manifest["tokens"] / TOKENS[manifest["size"]] - 1) < 0.05  # batches are not quite full
    assert build_model(manifest["size"], 0).num_parameters() == manifest["parameters"]
    words = (pocket.path() / "tokenizer.json").read_bytes()
    assert (folder / "tokenizer.json").read_bytes() == words, "all read in the same tokens"


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name != "pocket-t5")) for name in pocket.WEIGHTS]
)
def test_the_weights_reach_their_report(name: str) -> None:
    """On a sample of the exam, within what chance allows a sample to differ."""
    model, tokenizer = load_model(pocket.path(name))
    claimed = read_json(pocket.path(name) / "manifest.json")["report"]
    measured = report(model, tokenizer, n=60, answers=name == "pocket")  # type: ignore[arg-type]
    assert measured.keys() == claimed.keys()
    for skill, result in measured.items():
        assert abs(result["right"] - claimed[skill]["right"]) < 0.2, skill
    if name == "pocket":
        assert measured["recall, taught facts"]["right"] > 0.9
    assert measured["recall, untaught facts"]["right"] < 0.1
    assert measured["judge relevance"]["auroc"] > 0.75


def test_a_small_judge_answers_by_its_name() -> None:
    """Without its own adapter it would be asked in a format that it has never read."""
    judge: Any = connect("pocket-t5")
    assert judge.adapter_name == "pocket" and judge.base.startswith("local/pocket-t5#")
    sampler, found = LessonSampler("by name"), []
    for _ in range(20):
        fact = sampler.fact()
        other = sampler.distractors(fact, 1)[0]
        for shown in (fact, other):
            asked = {"question": ask(fact.relation, fact.subject), "passage": sampler.passage(shown)[0]}
            with dspy.context(lm=judge, adapter=judge.adapter):
                answer = dspy.Predict(judges.PassageRelevance)(**asked)
            found.append((answer.verdict, shown is fact))
    assert sum((verdict == "relevant") == right for verdict, right in found) > 26


def small(out: Path, **options: object) -> dict:
    settings: dict = {"tokens": 80_000, "size": "tiny", "threads": 1, "regions": 6, "exam": 2, "progress": False}
    return train(out, **settings | options)


@pytest.mark.parametrize("size", ["tiny", "t5"])
def test_what_is_trained_is_what_transformers_computes(size: str) -> None:
    """The step's own attention, padding and masks must not make another model of it than the one that answers."""
    tokenizer: Any = AutoTokenizer.from_pretrained(pocket.path())
    sampler = LessonSampler("loss")
    makers = (lessons.copy, lessons.recall, lessons.judge_passage, lessons.judge_self, lessons.decompose)
    rows = [encode(tokenizer.backend_tokenizer, [maker(sampler)]) for maker in makers for _ in range(2)]
    model: Any = build_model(size, 0)
    losses, count = 0.0, 0.0
    for ids, answer in rows:
        start, whole = answer.index(True), torch.tensor([ids])
        weights = torch.tensor([1.0 + 4 * counts for counts in answer[1:]])
        with torch.inference_mode():
            if size == "t5":
                logits = model(whole[:, :start], labels=whole[:, start:]).logits
                weights = torch.full_like(logits[0, :, 0], len(logits[0]) ** -0.5)  # an answer counts once
            else:
                logits = model(whole).logits[:, :-1]
        each = torch.nn.functional.cross_entropy(logits[0], whole[0, -len(weights) :], reduction="none")
        losses, count = losses + float((each * weights).sum()), count + float(weights.sum())
    assert Trainer(model).step(*collate(rows), 0.0) == pytest.approx(losses / count, rel=0.01)  # it may have bfloat16


@pytest.mark.parametrize(("has", "dtype"), [(True, torch.bfloat16), (False, torch.float32)])
def test_a_cpu_without_bfloat16_trains_in_float32(has: bool, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Emulated, it took five times as long."""
    monkeypatch.setattr("raisf.lm.pocket.trainer.multiplies_bfloat16", lambda: has)
    assert Trainer(build_model("tiny", 0)).model.dtype == dtype


def test_what_a_t5_reads_holds_no_answers() -> None:
    """Its encoder reads what stands before the last completion; only lessons of one pair lose nothing by that."""
    sampler = LessonSampler("t5")
    for start in (True, False):
        assert all(len(lesson) == 1 for lesson in lessons.lessons(sampler, 200, start, judging=True))


@pytest.mark.parametrize("within", [False, True])
def test_lessons_that_nobody_makes_any_more_are_not_waited_for(within: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine out of memory kills the process that makes them: the training waited for ever.

    `within`: while it sends a chunk, half of which is there.
    """
    monkeypatch.setattr("raisf.lm.pocket.batches.CHUNK_LESSONS", 500)
    batches = Batches(AutoTokenizer.from_pretrained(pocket.path("pocket-tiny")), 0, 10**9, 1)
    with batches as chunks:
        assert next(chunks)
        assert not within or batches.chunks.poll(60)
        batches.process.kill()
        with pytest.raises(RaisfError, match="has ended"):
            for _ in chunks:
                pass


@pytest.mark.slow
@pytest.mark.parametrize("size", ["tiny", "t5"])
def test_a_killed_training_goes_on_and_ends_with_the_same_weights(
    size: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else an hour's training would be lost to a closed laptop, or its result depend on when it was closed."""
    monkeypatch.setattr("raisf.utils.checkpointing.SAVE_SECONDS", 0)
    monkeypatch.setattr("raisf.lm.pocket.batches.CHUNK_LESSONS", 150)
    whole = small(tmp_path / "whole", size=size)

    step, steps = Trainer.step, []

    def stopped(self: Trainer, *batch: Any) -> float:
        if len(steps) == 7:
            raise KeyboardInterrupt
        steps.append(batch)
        return step(self, *batch)

    monkeypatch.setattr(Trainer, "step", stopped)
    with pytest.raises(KeyboardInterrupt):
        small(tmp_path / "halves", size=size)
    assert (tmp_path / "halves.unfinished" / "at.json").is_file()
    monkeypatch.setattr(Trainer, "step", step)
    with pytest.raises(InputError, match="unfinished training with other settings"):
        small(tmp_path / "halves", size=size, seed=1)
    resumed = small(tmp_path / "halves", size=size)
    assert resumed["weights_sha256"] == whole["weights_sha256"]
    assert whole["curve"][-1]["loss"] < whole["curve"][0]["loss"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["halves", "whole"]
    assert (tmp_path / "whole" / "learning.png").read_bytes().startswith(b"\x89PNG")


def test_a_size_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=re.escape("unknown size 'huge': choose tiny, pocket, large, t5")):
        train(tmp_path / "x", size="huge")
    with pytest.raises(InputError, match="less than one step"):
        train(tmp_path / "x", tokens=5)


@pytest.mark.skipif(not (pocket.path() / "model.safetensors").is_file(), reason="the pocket Llama is not trained yet")
def test_the_pocket_llama_takes_an_adapter(tmp_path: Path) -> None:
    lm: Any = connect("pocket")
    questions = [{"question": f"Who is {name}?"} for name in ("Velmora", "Kastrel", "Tisdel", "Belrin", "Oran")]
    said = [lm.adapter.format_finetune_data(answers.DirectAnswer, [], one, {"answer": "nobody"}) for one in questions]
    rows, training = (
        [TrainingRow(one["messages"]) for one in said],
        Training(epochs=24, batch_size=2, learning_rate=5e-3),
    )
    folder = finetune(lm, rows, rows[:2], tmp_path, training, progress=False)
    curve = read_json(folder / TRAINING)["curve"]
    assert min(point["loss"] for point in curve) < curve[0]["loss"] / 2
    trained = connect(f"pocket@{folder}")
    assert trained.model.startswith("local/pocket@")
    with dspy.context(lm=trained, adapter=trained.adapter):
        assert dspy.Predict(answers.DirectAnswer)(question="Who is Ulm?").answer == "nobody"
