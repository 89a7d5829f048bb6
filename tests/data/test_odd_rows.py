"""Rows that a public set's files have now and then, and that no schema promises."""

import json
from pathlib import Path

import pytest

from raisf.data.datasets.files import write_dataset
from raisf.data.questions import load_questions
from raisf.data.schemas import paragraphs, question_row
from raisf.utils.errors import InputError
from raisf.utils.files import write_jsonl
from tests.data.test_schemas import HOTPOT, MUSIQUE, TWO_WIKI


def test_a_musique_whose_paragraphs_have_no_numbers_gives_no_step_anothers_title():
    """Each step had the last paragraph's, and the others were lost."""
    bare = [{name: value for name, value in one.items() if name != "idx"} for one in MUSIQUE["paragraphs"]]
    steps = [{**step, "paragraph_support_idx": None} for step in MUSIQUE["question_decomposition"]]
    found = question_row({**MUSIQUE, "paragraphs": bare, "question_decomposition": steps})
    assert found["gold_titles"] == ["Ada", "Elmton"] and found["sub_titles"] == []


def test_answers_that_are_true_or_false_are_yes_or_no():
    assert question_row({"question": "Is it?", "golden_answers": [True]})["answers"] == ["yes"]
    for told, meant in {"True": "yes", "true": "yes", "FALSE": "no"}.items():
        assert question_row({"question": "Is it?", "golden_answers": [told]})["answers"] == [meant]
        assert question_row({"question": "True or false: it is.", "answer": told})["answers"] == [told]
    several = ["True", "Truth"]
    assert question_row({"question": "Which song is it?", "answers": several})["answers"] == several
    assert question_row({"question": "Is it?", "answers": several})["answers"] == several
    assert question_row({"question": "Is it?", "answers": False})["answers"] == ["no"]


def test_numbers_are_answers():
    """42 was refused as a list of something else than texts."""
    row = {"question": "How many?", "answer": 42, "answers": [42.0, 2.5, "forty-two"]}
    assert question_row(row)["answers"] == ["42", "2.5", "forty-two"]
    assert question_row({"question": "How many?", "answer": [10**400, 1e300]})["answers"] == [str(10**400), "1e+300"]
    with pytest.raises(ValueError, match="must be a text"):
        question_row({"question": "How many?", "answer": [float("inf")]})


def test_a_files_kind_is_told_by_its_name_in_capitals_too(tmp_path: Path):
    (tmp_path / "Q.JSON").write_text(json.dumps([HOTPOT]))
    assert len(load_questions(tmp_path / "Q.JSON")) == 1


def test_a_value_that_is_nested_without_end_is_told_as_such(tmp_path: Path):
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(InputError, match="nested deeper"):
        load_questions(tmp_path / "deep.json")


def test_scores_that_are_a_list_name_the_schema_that_they_are_not_of(tmp_path: Path):
    (tmp_path / "task.json").write_text(json.dumps({"examples": [{"input": "Is it?", "target_scores": [1]}]}))
    with pytest.raises(InputError, match=r"question 1: not as bigbench has it"):
        load_questions(tmp_path / "task.json")


def test_true_is_a_title_where_nobody_is_asked_for_yes_or_no():
    """An album of that name had the gold answer "yes"."""
    row = {"question": "What is the title of Avicii's first album?", "answer": "True"}
    assert question_row(row)["answers"] == ["True"]
    assert question_row({"question": "In Rome, is it true that Ada lived?", "answer": "True"})["answers"] == ["yes"]


def test_what_stands_beside_a_public_sets_own_answer_counts():
    """Other spellings that somebody had added to HotpotQA's rows were passed over, and so were her kind and scoring."""
    found = question_row({**HOTPOT, "answers": ["Other"], "scoring": "triviaqa", "kind": "mine", "type": "bridge"})
    assert found["answers"] == [HOTPOT["answer"], "Other"] and found["scoring"] == "triviaqa"
    assert found["kind"] == "mine"
    without = {name: value for name, value in HOTPOT.items() if name != "answer"}
    assert question_row({**without, "answers": ["Other"]})["answers"] == ["Other"]


def test_ids_that_train_and_test_share_are_refused(tmp_path: Path) -> None:
    """Every file began with q1: the data set was written, and every later command refused to compile on it."""
    for split, asked in (("train", "Who made {}?"), ("test", "Where does {} lie?")):
        rows = [{"id": f"q{n}", "question": asked.format(f"Elm {n}"), "answer": "Ann"} for n in range(20)]
        write_jsonl(tmp_path / f"{split}.jsonl", rows)
    files: dict[str, Path | str] = {split: tmp_path / f"{split}.jsonl" for split in ("train", "test")}
    with pytest.raises(InputError, match=r"test\.jsonl, question 1: a question of (train|dev) has its id, 'q0', too"):
        write_dataset("nq", tmp_path / "out", files=files, progress=False)
    assert not (tmp_path / "out").exists()


def test_facts_of_strategyqa_that_are_no_texts_are_told() -> None:
    """It ended in a TypeError."""
    row = {"qid": "s1", "question": "Is it?", "answer": True, "decomposition": [], "facts": 5}
    with pytest.raises(ValueError, match="neither a text nor a list"):
        paragraphs(row)


def test_the_hops_of_2wiki_are_its_evidences_where_one_paragraph_states_two():
    evidences = [*TWO_WIKI["evidences"], ["Elm River", "mouth", "Elm Bay"]]
    assert question_row({**TWO_WIKI, "evidences": evidences})["hops"] == 3
    assert question_row({**TWO_WIKI, "evidences": []})["hops"] == 2


@pytest.mark.parametrize("number", [9, -1])
def test_a_supporting_sentence_that_its_paragraph_has_not_leaves_the_question_without_any(number: int):
    facts = [HOTPOT["supporting_facts"][0], [HOTPOT["supporting_facts"][1][0], number]]
    assert question_row({**HOTPOT, "supporting_facts": facts})["gold_sentences"] == []


def test_a_musique_of_flashrag_of_which_one_step_has_its_paragraph_gives_no_step_anothers():
    paragraph, step, other = MUSIQUE["paragraphs"][0], *MUSIQUE["question_decomposition"]
    steps = [{**step, "support_paragraph": paragraph}, other]
    found = question_row({"question": "Which?", "answer": "Elm River", "question_decomposition": steps})
    assert found["gold_titles"] == ["Ada"] and found["sub_titles"] == ["", ""]


def test_what_a_public_set_says_itself_is_not_taken_from_fields_beside_it():
    assert question_row({**HOTPOT, "hops": 7})["hops"] == 2
    assert question_row({**MUSIQUE, "id": "x"})["kind"] is None


def test_gold_titles_are_those_of_the_index_that_is_made_of_their_paragraphs(tmp_path: Path):
    """An index has them on one line, without the marks of where a word may be broken."""
    odd = json.loads(json.dumps(HOTPOT).replace('"Elmton"', '"Elm\\u00ad  ton"'))
    write_jsonl(tmp_path / "dev.jsonl", [odd])
    about = write_dataset("hotpotqa", tmp_path / "out", files={"test": tmp_path / "dev.jsonl"}, progress=False)
    (example,) = load_questions(tmp_path / "out" / "test.jsonl")
    assert example.gold_titles == ["Ada", "Elm ton"] and about["corpus"]["with_all_gold"] == 1
    plain = {"question": "Who?", "answer": "Ann", "sub_questions": ["Where?"], "sub_titles": ["Elm\u00ad  ton"]}
    write_jsonl(tmp_path / "q.jsonl", [plain])
    assert load_questions(tmp_path / "q.jsonl")[0].sub_titles == ["Elm ton"]
