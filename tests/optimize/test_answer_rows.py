"""If these failed, an answerer would learn from passages without the answer, or invent where it should say unknown."""

import random
from pathlib import Path
from typing import Any

import dspy
import pytest

from raisf.data.schemas import question_row
from raisf.lm.finetune.trainable import trainable
from raisf.lm.finetune.training import Training
from raisf.lm.local.model import LocalLM
from raisf.optimize.compile import compile
from raisf.optimize.demonstrations import Rows
from raisf.optimize.judges.answer_data import composition_rows, reading_rows, recall_rows
from raisf.optimize.optimizers.base import Compilation
from raisf.optimize.optimizers.finetune import FinetuneJudges
from raisf.optimize.optimizers.training_rows import Source
from raisf.optimize.traces import Traced
from raisf.programs.ra_isf import RAISF
from raisf.retrieval.passage import Passage
from raisf.utils.errors import InputError
from raisf.utils.files import read_json
from raisf.utils.journal import Journal
from tests.scripted import ScriptedLM
from tests.shelf import Shelf

PASSAGES = [
    Passage("a", "Ada Hill was born in Elmton. She paints.", "Ada Hill"),
    Passage("e", "Elmton lies on the Elm River. It is old.", "Elmton"),
    Passage("b", "Bea Stone was born in Oakham.", "Bea Stone"),
    Passage("o", "Oakham is famous for its bells.", "Oakham"),
]
SHELF = Shelf(lambda query: PASSAGES)


def question(**more: Any) -> dspy.Example:
    made = {
        "question": "Where was Ada Hill born?",
        "answer": "Elmton",
        "answers": ["Elmton"],
        "gold_titles": ["Ada Hill"],
    }
    return dspy.Example(**{**made, **more}).with_inputs("question")


def many(**more: Any) -> list[dspy.Example]:
    return [question(question=f"Where was Ada Hill born ({number})?", **more) for number in range(60)]


def test_a_reader_learns_from_gold_passages_among_others_and_to_say_unknown_without_them() -> None:
    rows = reading_rows(many(), SHELF, 4, random.Random(0))
    told = [row for row in rows if row.answer != "unknown"]
    assert 0.1 < 1 - len(told) / len(rows) < 0.3
    assert all(row.evidence == "Ada Hill was born in Elmton." for row in told)
    assert all("Ada Hill" in " ".join(row.passages) and row.answer == "Elmton" for row in told)
    assert {len(row.passages) for row in told} == {1, 2, 3}
    unknown = [row for row in rows if row.answer == "unknown"]
    # Elmton's own passage holds the answer too: it is no passage without it.
    assert all(row.evidence == "none" and row.passages and "Elmton" not in " ".join(row.passages) for row in unknown)


def test_a_fifth_of_the_rows_say_unknown_however_many_questions_have_no_passage_to_answer_them() -> None:
    """The questions left out still gave rows of this kind: more than half of these, a third of those of real sets."""
    lost = [question(question=f"Who was Cleo Fell ({number})?", gold_titles=["Cleo Fell"]) for number in range(300)]
    rows = reading_rows([*many(), *lost], SHELF, 4, random.Random(0))
    assert {"Ada"} == {row.question.split()[2] for row in rows} and len(rows) == 60
    assert 0.1 < sum(row.answer == "unknown" for row in rows) / len(rows) < 0.3


def test_a_question_of_several_passages_is_read_only_where_all_were_found() -> None:
    both = many(gold_titles=["Ada Hill", "Elmton"], answer="Elm River", answers=["Elm River"])
    rows = [row for row in reading_rows(both, SHELF, 4, random.Random(0)) if row.answer != "unknown"]
    assert rows and all(
        {"Ada Hill | ", "Elmton | "} <= {text[: text.index("|") + 2] for text in row.passages} for row in rows
    )
    assert all(row.evidence == "Elmton lies on the Elm River." for row in rows)
    assert not [row for row in reading_rows(both, SHELF, 1, random.Random(0)) if row.answer != "unknown"]
    first = many(gold_titles=["Ada Hill", "Elmton"])  # whose answer stands in the one passage that is found
    assert reading_rows(first, SHELF, 2, random.Random(0)) and not reading_rows(first, SHELF, 1, random.Random(0))


def test_the_sentences_that_a_data_set_names_are_the_evidence() -> None:
    row = {
        "_id": "1",
        "question": "On which river lies the birthplace of Ada Hill?",
        "answer": "Elm River",
        "supporting_facts": [["Ada Hill", 0], ["Elmton", 0]],
        "context": [
            ["Ada Hill", ["Ada Hill was born in Elmton.", " She paints."]],
            ["Elmton", ["It lies on the Elm River."]],
        ],
    }
    found = question_row(row)
    assert found["gold_sentences"] == ["Ada Hill was born in Elmton.", "It lies on the Elm River."]
    rows = reading_rows([dspy.Example(**found)], SHELF, 4, random.Random(1))
    assert rows[0].evidence == "Ada Hill was born in Elmton. It lies on the Elm River."
    row["supporting_facts"] = [["Ada Hill", 7]]
    assert question_row(row)["gold_sentences"] == []


def test_what_stands_in_none_of_the_parts_that_were_found_is_no_lesson() -> None:
    quoted = many(gold_sentences=["Her sister Cleo moved to Oakham with the circus in 1910."])
    elsewhere = many(answer="Oakham", answers=["Oakham"])
    for examples in (quoted, elsewhere):
        assert not reading_rows(examples, SHELF, 4, random.Random(0))
    for answer in ("yes", "Yes.", "NO"):
        closed = reading_rows(many(answer=answer, answers=[answer]), SHELF, 4, random.Random(0))
        assert {(row.answer, row.evidence) for row in closed} == {(answer, "none"), ("unknown", "none")}


def test_recall_is_learnt_of_what_the_lm_knows_alone() -> None:
    rows = recall_rows(many(), [many()[3].question])
    assert [(row.question, row.answer) for row in rows] == [("Where was Ada Hill born (3)?", "Elmton")]
    assert len(recall_rows(many(), None)) == 60


def test_what_is_known_of_validation_questions_is_asked_where_the_rows_given_are_of_others(tmp_path: Path) -> None:
    """Recall was validated on the student's own right runs, since no row that was held out is of such a question."""
    program = RAISF(SHELF, k=2)
    program.set_lm(ScriptedLM(lambda fields: {"answer": "Elmton" if "(1" in fields["question"] else "Oakham"}))
    train, dev = many()[:20], [*many()[20:], question(question="Where was Ada Hill born (1,000)?")]
    given = {"know": [dspy.Example(question=train[n].question, verdict="know" if n else "unknown") for n in range(9)]}
    task = Compilation(program, train, dev, None, Journal(tmp_path / "journal.jsonl"), lambda: 0)
    options = FinetuneJudges(predictors="answer_directly", progress=False)
    learnt, held = (
        Source.of(task, part, ["answer_directly"], split, 99, options, given)
        for part, split in ((train, "train"), (dev, "validation"))
    )
    assert [row.question for row in learnt.rows_of("answer_directly")] == [one.question for one in train[1:9]]
    assert [row.question for row in held.rows_of("answer_directly")] == [dev[-1].question] and held.runs is None


@pytest.mark.parametrize("knows", [0, 1, 20])
def test_recall_is_learnt_of_what_is_known_also_where_that_is_nothing_or_all(knows: int, tmp_path: Path) -> None:
    """No judge learns from one verdict alone: its answerer was trained to recite whatever its LM does not know."""
    program, asked = RAISF(SHELF, k=2), many()[:20]
    known = {one.question for one in asked[:knows]}
    program.set_lm(ScriptedLM(lambda fields: {"answer": "Elmton" if fields["question"] in known else "Oakham"}))
    task = Compilation(program, asked, [], None, Journal(tmp_path / "journal.jsonl"), lambda: 0)
    chosen = ["answer_directly"]
    source = Source.of(task, asked, chosen, "train", 99, FinetuneJudges(predictors=chosen, progress=False), None)
    assert {row.question for row in source.gold.of.get("answer_directly", [])} == known


def test_no_answerer_is_validated_on_a_sub_question_that_it_learns(tmp_path: Path) -> None:
    program = RAISF(SHELF, k=2)
    program.set_lm(ScriptedLM(lambda fields: {}))
    chain = {
        "gold_titles": ["Ada Hill", "Elmton"],
        "sub_questions": ["Where was Ada Hill born?", "On which river lies #1?"],
        "sub_answers": ["Elmton", "Elm River"],
    }
    train, dev = ([question(question=f"By which river ({n})?", answer="Elm River", **chain)] for n in (1, 2))
    task = Compilation(program, train, dev, None, Journal(tmp_path / "journal.jsonl"), lambda: 0)
    sources = FinetuneJudges(progress=False)._sources(task, ["answer_from"], random.Random(0))
    learnt, held = ({row.question for row in source.rows_of("answer_from")} for source in sources)
    assert {"Where was Ada Hill born?", "On which river lies Elmton?"} < learnt and held == {dev[0].question}


def test_no_answerer_is_validated_on_a_right_run_about_what_it_learns() -> None:
    def of(split: str, *asked: str) -> Source:
        rows = [dspy.Example(question=one, answer="Elmton") for one in asked]
        return Source(split, 9, Rows(), traced=Traced(of={"compose": rows}))

    held = of("validation", "where was  Ada Hill BORN?", "Where was Bea Stone born?")
    held.leave_out(of("train", "Where was Ada Hill born?"))
    assert [row.question for row in held.rows_of("compose")] == ["Where was Bea Stone born?"]


def test_composition_fills_in_answers_and_has_none_where_the_last_is_missing() -> None:
    steps = {
        "sub_questions": ["Where was Ada Hill born?", "On which river lies #1?"],
        "sub_answers": ["Elmton", "Elm River"],
    }
    rows = composition_rows(many(**steps, answer="Elm River", answers=["Elm River"]), random.Random(0))
    told = next(row for row in rows if row.answer == "Elm River")
    assert told.facts == ["Where was Ada Hill born? = Elmton", "On which river lies Elmton? = Elm River"]
    unknown = next(row for row in rows if row.answer == "unknown")
    assert unknown.facts[-1] == "On which river lies Elmton? = unknown"
    assert composition_rows(many(), random.Random(0)) == []


@pytest.fixture(scope="module")
def base(llama: Path) -> LocalLM:
    return LocalLM(f"local/{llama}")


def test_the_whole_program_learns_and_the_report_keeps_it_apart_from_judges_alone(
    program: RAISF, world: Any, base: LocalLM, tmp_path: Path
) -> None:
    given: dict[str, Any] = {"trainset": world.train[:30], "valset": world.dev[:6], "base": base, "rows": 12}
    given |= {"how": "weights", "training": Training(epochs=1, rank=2, batch_size=8, layers=1), "progress": False}
    whole = compile(program, **given, predictors="all", labels="gold", work=tmp_path / "work")
    report = whole.compile_report
    assert report["trained"] == "all"
    assert {"know", "relevant", "answer_from", "compose"} <= report["predictors"].keys()
    assert {made["source"] for made in report["predictors"].values()} == {"gold"}
    adapter = read_json(whole.answer_from.lm.lora / "adapter_config.json")
    layers = base.base_engine.model.config.num_hidden_layers
    assert adapter["layers_to_transform"] == [layers - 1] and "lm_head" not in adapter["target_modules"]
    alone = compile(program, **given, predictors="judges", labels="gold", work=tmp_path / "work").compile_report
    assert alone["trained"] == "judges only" and "answer_from" not in alone["predictors"]


def test_layers_are_those_of_the_base(base: LocalLM) -> None:
    assert trainable(base, "lora", 2, 1) is not None
    with pytest.raises(InputError, match="has 2 layers: give at most so many, not 99"):
        compile_with(base, Training(layers=99))
    with pytest.raises(InputError, match="layers"):
        Training(layers=0)


def compile_with(base: LocalLM, training: Training) -> None:
    from raisf.lm.finetune.training import check_trainable

    check_trainable(base, training)
