"""Who measures a program on what it was compiled on, or its encoder trained on, is told so; nobody else is bothered."""

import json
import shutil
from pathlib import Path
from typing import Any

import dspy
import pytest

import raisf
from raisf.data.questions import load_questions
from raisf.evaluation.runner import evaluate
from raisf.evaluation.seen import seen_by
from raisf.experiments.learning import lend
from raisf.optimize.artifact import load, save
from raisf.optimize.manifest import read
from raisf.optimize.overlap import learnt_from, overlap
from raisf.optimize.shipped import shipped_folder
from raisf.retrieval.encoders.checkpoint import find_checkpoint
from raisf.retrieval.index import build_index
from raisf.retrieval.passage import Passage
from raisf.utils.text import print_of

QUIET: dict[str, Any] = {"progress": False}
SEEN = "evaluating: the program was compiled on 4 of the 6 questions, such as "


class Wrap(dspy.Module):
    """A module of a user's own."""

    def __init__(self, inner: dspy.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, question: str) -> dspy.Prediction:
        return dspy.Prediction(answer=self.inner(question=question).answer)


@pytest.fixture
def compiled(program: Any, world: Any) -> Any:
    return raisf.LabeledJudges(**QUIET).compile(program, trainset=world.train[:30], valset=world.dev[:4])


def said_of(program: Any, examples: Any, caplog: pytest.LogCaptureFixture) -> str:
    caplog.clear()
    evaluate(program, examples, **QUIET)
    return caplog.text


def test_what_was_learnt_from_or_chosen_by_is_told_and_the_rest_is_not(
    compiled: Any, world: Any, caplog: pytest.LogCaptureFixture
) -> None:
    seen = [world.train[0], world.train[29], world.dev[0], world.dev[3]]
    said = said_of(compiled, [*seen, *world.test[:2]], caplog)
    assert SEEN + repr(seen[0].question) in said
    assert "says nothing about others" in said
    assert said_of(compiled, [*world.train[30:33], *world.test[:3]], caplog) == ""


def test_the_page_of_a_comparison_says_it(compiled: Any, program: Any, world: Any, tmp_path: Path) -> None:
    options: Any = {"judges": False, **QUIET}
    raisf.compare({"a": compiled, "b": program}, world.train[:2], out=tmp_path / "r", **options)
    assert "a: the program was compiled on 2 of the 2 questions" in (tmp_path / "r" / "report.html").read_text()
    held_out = raisf.compare({"a": compiled, "b": program}, world.test[:2], **options)
    assert held_out.facts["not held out"] is None


def test_it_is_known_of_copies_artifacts_and_parts(
    compiled: Any, world: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mixed = [*world.train[:4], *world.test[:2]]
    save(compiled, tmp_path / "a")
    assert world.train[0].question not in (tmp_path / "a" / "manifest.json").read_text()
    loaded: Any = load(tmp_path / "a", lm=compiled.know.lm)
    again = raisf.Calibrate(**QUIET).compile(loaded, trainset=world.train[30:50], valset=world.dev[:10])
    for one in (loaded, Wrap(loaded), again, again.deepcopy()):
        assert SEEN in said_of(one, mixed, caplog), type(one)
    assert "on 2 of the 2 questions" in said_of(again, world.dev[8:10], caplog)


def test_what_is_wrapped_or_taken_out_of_a_wrapper_is_known_too(
    compiled: Any, program: Any, world: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mixed = [*world.train[:4], *world.test[:2]]
    save(Wrap(compiled), tmp_path / "a")
    fresh = Wrap(raisf.RAISF(program.retriever))
    assert SEEN in said_of(load(tmp_path / "a", lm=compiled.know.lm, program=fresh), mixed, caplog)
    options: Any = {"trainset": world.train[30:40], "valset": world.dev[:4]}
    again: Any = raisf.LabeledJudges(**QUIET).compile(Wrap(compiled), **options)
    outer: Any = raisf.LabeledJudges(**QUIET).compile(Wrap(program), trainset=world.train[:30], valset=world.dev[:4])
    for one in (again, again.inner, outer.inner):
        assert SEEN in said_of(one, mixed, caplog)
    lent: Any = raisf.RAISF(program.retriever)
    lend(lent, compiled, {"know"})
    assert set(lent.learnt_from) == set(compiled.learnt_from)


def test_dspys_json_and_the_parts_of_an_artifact_know_it(
    compiled: Any, program: Any, world: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Loaded from DSPy's JSON, or taken out of a module that was loaded, it was measured on its training questions."""
    mixed, lm = [*world.train[:4], *world.test[:2]], compiled.know.lm
    fresh = raisf.RAISF(program.retriever)
    save(Wrap(compiled), tmp_path / "a")
    loaded: Any = load(tmp_path / "a", lm=lm, program=Wrap(fresh))
    assert SEEN in said_of(loaded.inner, mixed, caplog)
    compiled.set_lm(None)  # a scripted one cannot be written
    for saved, again in ((compiled, fresh.deepcopy()), (Wrap(compiled), Wrap(fresh))):
        saved.save(tmp_path / "state.json")
        again.load(tmp_path / "state.json")
        again.set_lm(lm)
        assert SEEN in said_of(again, mixed, caplog)


def test_sub_questions_count_with_their_answers_filled_in(compiled: Any, world: Any) -> None:
    several = next(one for one in world.train[:30] if one.sub_questions and "#1" in one.sub_questions[-1])
    filled = several.sub_questions[-1].replace("#1", several.sub_answers[0])
    assert {print_of(several.sub_questions[0]), print_of(filled)} <= set(compiled.learnt_from)


@pytest.mark.parametrize("own", [None, 5, "a text", {"a": 1}, [["a"]]])
def test_an_attribute_of_that_name_may_be_anything(program: Any, world: Any, tmp_path: Path, own: Any) -> None:
    module: Any = Wrap(program)
    module.learnt_from = own
    evaluate(module, world.test[:2], **QUIET)
    save(module, tmp_path / "a")
    assert read(tmp_path / "a").learnt_from == []


def test_one_question_is_told_in_the_singular_and_a_long_one_is_cut(compiled: Any, world: Any) -> None:
    assert seen_by(compiled, world.train[:1]) == ["the program was compiled on the one question"]
    long = dspy.Example(question="why " * 10_000, answer="a").with_inputs("question")
    compiled.learnt_from = [print_of(long.question)]
    (told,) = seen_by(compiled, [long, world.test[0]])
    assert len(told) < 200


def test_letters_are_the_same_however_they_are_composed() -> None:
    assert (
        print_of("Where is the Caf\u00e9?") == print_of("where is the  Cafe\u0301?") != print_of("Where is the Cafe?")
    )


def test_an_older_artifact_says_nothing(compiled: Any, world: Any, tmp_path: Path, caplog: Any) -> None:
    save(compiled, tmp_path / "a")
    told = json.loads((tmp_path / "a" / "manifest.json").read_text())
    del told["learnt_from"]
    (tmp_path / "a" / "manifest.json").write_text(json.dumps(told))
    assert said_of(load(tmp_path / "a", lm=compiled.know.lm), world.train[:3], caplog) == ""


def test_what_the_encoder_was_trained_on_is_told_through_a_filter_too(
    world: Any, oracle: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    questions = world.train[:3]
    checkpoint = tmp_path / "trained"
    shutil.copytree(find_checkpoint("minilm").path, checkpoint)
    training = checkpoint / "training.json"
    training.write_text(json.dumps({"queries": [print_of(f" {questions[1].question.upper()}  ")]}))
    passages = [Passage("a", "Rivers", "A river ends in a sea."), Passage("b", "Towns", "A town lies by a river.")]
    index: Any = build_index(passages, tmp_path / "index", checkpoint=checkpoint, **QUIET)
    for retriever in (index, index.where("title = 'Towns'"), raisf.as_retriever(index, "mine"), None):
        program = raisf.RAG(retriever)
        program.set_lm(oracle())
        with dspy.context(rm=index):
            said = said_of(program, questions, caplog)
        assert "the encoder of its index was trained on 1 of the 3 questions" in said
        assert repr(questions[1].question) in said


@pytest.mark.parametrize("told", ["{}", "[]", '{"queries": "all"}', '{"queries": null}', '{"epochs": 3}', "", '{"a'])
def test_anothers_file_of_that_name_says_nothing(told: str, tmp_path: Path) -> None:
    shutil.copytree(find_checkpoint("minilm").path, tmp_path / "c")
    (tmp_path / "c" / "training.json").write_text(told)
    assert find_checkpoint(tmp_path / "c").seen_queries() == frozenset()


def test_the_program_that_ships_knows_what_it_has_learnt_from() -> None:
    seen = set(read(shipped_folder("smollm2")).learnt_from)
    almanac = Path(__file__).parents[2] / "data" / "almanac"
    asked = {
        name: {print_of(example.question) for example in load_questions(almanac / f"{name}.jsonl")}
        for name in ("train", "dev", "test", "unanswerable")
    }
    assert asked["train"] | asked["dev"] <= seen and not (asked["test"] | asked["unanswerable"]) & seen


def test_examples_of_several_inputs_are_told_apart_by_all_of_them() -> None:
    texts = ("Ada came with flowers and stayed.", "Nobody answered the door for weeks.")
    rows = [dspy.Example(text=text, question="Is it kind?", answer="yes") for text in texts]
    asked = [row.with_inputs("text", "question") for row in rows]
    assert not overlap(asked[:1], asked[1:]) and overlap(asked, asked)
    program = dspy.Predict("text, question -> answer")
    program.learnt_from = learnt_from(program, asked)
    assert len(program.learnt_from) == 2 and seen_by(program, asked[:1]) and not seen_by(program, rows)
    # Where the other side marks other inputs, by the questions alone; an id is no input.
    assert overlap(asked, [dspy.Example(question="Is it kind?").with_inputs("question")])
    named = [row.copy(id=f"n{n}").with_inputs("id", "text", "question") for n, row in enumerate(rows)]
    assert overlap(asked, named) and not overlap(asked[:1], named[1:])
