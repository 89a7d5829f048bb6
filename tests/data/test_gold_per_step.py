"""If these failed, a relevance judge would be trained to call the wrong passage relevant to a sub-question."""

import json
from pathlib import Path
from typing import Any

import pytest

from raisf.data.questions import load_questions
from raisf.data.rows import read_rows
from raisf.data.schemas import question_row
from raisf.optimize.judges.judge_data import steps

SHARED = Path(__file__).parents[3] / "shared" / "data"

# As the files have it: paragraphs stand in no order, and a step names its own by number.
MUSIQUE: dict[str, Any] = {
    "id": "3hop1__1_2_3",
    "paragraphs": [
        {"idx": 0, "title": "Port Elm", "paragraph_text": "Port Elm is a town.", "is_supporting": False},
        {"idx": 1, "title": "Elm County", "paragraph_text": "Its seat is Elmton.", "is_supporting": True},
        {"idx": 2, "title": "Elmton", "paragraph_text": "Elmton lies on the Elm River.", "is_supporting": True},
        {"idx": 3, "title": "Elm Hill", "paragraph_text": "Elm Hill is in Elm County.", "is_supporting": True},
    ],
    "question": "Which river flows through the capital of the county of Elm Hill?",
    "question_decomposition": [
        {"id": 1, "question": "Elm Hill >> county", "answer": "Elm County", "paragraph_support_idx": 3},
        {"id": 2, "question": "#1 >> capital", "answer": "Elmton", "paragraph_support_idx": 1},
        {"id": 3, "question": "Which river flows through #2?", "answer": "Elm River", "paragraph_support_idx": 2},
    ],
    "answer": "Elm River",
    "answerable": True,
}
TWO_WIKI: dict[str, Any] = {
    "_id": "x",
    "question": "When was the director of The Elm King born?",
    "answer": "3 May 1900",
    "type": "compositional",
    "supporting_facts": [["Reeves Hill (director)", 0], ["The Elm King", 0]],
    "evidences": [["The Elm King", "director", "Reeves Hill"], ["Reeves Hill", "date of birth", "3 May 1900"]],
    "qa_pairs": [
        {"question": "Who is the director of The Elm King?", "answer": "The director is Reeves Hill."},
        {"question": "When was Reeves Hill born?", "answer": "Reeves Hill was born on 3 May 1900."},
    ],
    "context": [["The Elm King", ["A film."]], ["Reeves Hill (director)", ["A director."]]],
}


def test_a_step_of_musique_has_the_paragraph_that_it_names() -> None:
    row = question_row(MUSIQUE)
    assert row["sub_titles"] == ["Elm Hill", "Elm County", "Elmton"] == row["gold_titles"]


def test_a_step_whose_paragraph_is_not_there_is_left_without_one() -> None:
    row = question_row({**MUSIQUE, "paragraphs": MUSIQUE["paragraphs"][:3]})
    assert row["sub_titles"] == ["", "Elm County", "Elmton"] and set(row["gold_titles"]) == {"Elm County", "Elmton"}


def test_steps_that_name_no_paragraph_get_none_by_its_place(tmp_path: Path) -> None:
    """Copies without `paragraph_support_idx` paired steps with paragraphs as these stand, which is in no order."""
    named = MUSIQUE["question_decomposition"]
    bare = [{name: step[name] for name in ("id", "question", "answer")} for step in named]
    (tmp_path / "bare.jsonl").write_text(json.dumps({**MUSIQUE, "question_decomposition": bare}))
    (example,) = load_questions(tmp_path / "bare.jsonl")
    assert example.gold_titles == ["Elm County", "Elmton", "Elm Hill"]
    whole, *parts = steps(example)
    assert [set(part.gold) for part in parts] == [set()] * 3 and len(whole.gold) == 3 and not whole.decomposed


def test_two_passages_under_one_title_are_no_gold_of_the_whole_question(tmp_path: Path) -> None:
    """Each of them counted as enough for the whole question, and one of them as both."""
    twice = [{**one, "title": "Elm County"} for one in MUSIQUE["paragraphs"]]
    (tmp_path / "twice.jsonl").write_text(json.dumps({**MUSIQUE, "paragraphs": twice}))
    whole, *parts = steps(*load_questions(tmp_path / "twice.jsonl"))
    assert not whole.gold and [part.gold for part in parts] == [{"Elm County"}] * 3


def test_sub_questions_of_2wiki_refer_to_earlier_answers_and_have_their_own_paragraph() -> None:
    row = question_row(TWO_WIKI)
    assert row["sub_questions"] == ["Who is the director of The Elm King?", "When was #1 born?"]
    assert row["sub_answers"] == ["Reeves Hill", "3 May 1900"]
    assert row["sub_titles"] == ["The Elm King", "Reeves Hill (director)"]
    another = [["Reeves Hillman", 0], ["The Elm King", 0]]
    row = question_row({**TWO_WIKI, "supporting_facts": another})
    assert row["sub_titles"] == [], "a longer name is another's"


def test_an_answer_inside_another_word_is_no_reference_to_it() -> None:
    asked = "Who married Annika, sister of Ann?"
    pairs = [{"question": "Who is it?", "answer": "Ann."}, {"question": asked, "answer": "Bob."}]
    named = {"evidences": [["It", "is", "Ann"], ["Annika", "spouse", "Bob"]], "qa_pairs": pairs}
    assert question_row({**TWO_WIKI, **named})["sub_questions"] == ["Who is it?", "Who married Annika, sister of #1?"]


def test_the_parts_of_a_comparison_stand_alone() -> None:
    """Both villages lie in Iran, and the second was looked for in "#1"."""
    pairs = [{"question": f"Is {name} located in Iran?", "answer": f"{name} is in Iran."} for name in ("Elm", "Ulm")]
    told = {"type": "comparison", "evidences": [[name, "country", "Iran"] for name in ("Elm", "Ulm")]}
    row = question_row({**TWO_WIKI, **told, "qa_pairs": pairs})
    assert row["sub_questions"] == [pair["question"] for pair in pairs]


def test_a_step_that_names_an_earlier_answer_in_other_words_is_no_decomposition() -> None:
    """A decomposer learnt to ask about a person whom the question does not name."""
    pairs = [TWO_WIKI["qa_pairs"][0], {"question": "When was Reeves Elmer Hill born?", "answer": "On 3 May 1900."}]
    for kind in ("compositional", "inference", "bridge_comparison"):
        assert "sub_questions" not in question_row({**TWO_WIKI, "qa_pairs": pairs, "type": kind})
    assert "sub_questions" in question_row({**TWO_WIKI, "qa_pairs": pairs, "type": "comparison"})


def test_pairs_of_2wiki_that_do_not_match_their_evidences_are_no_decomposition() -> None:
    assert "sub_questions" not in question_row({**TWO_WIKI, "evidences": TWO_WIKI["evidences"][:1]})
    swapped = {**TWO_WIKI, "qa_pairs": TWO_WIKI["qa_pairs"][::-1]}
    assert "sub_questions" not in question_row(swapped)


def test_evidences_of_2wiki_in_another_order_or_in_other_words_than_the_pairs_are_matched_to_them() -> None:
    """A seventh of its questions had no decomposition: dates stand there another way round, and Swedish for Sweden."""
    told: dict[str, Any] = {
        "type": "comparison",
        "question": "Were Ada Hill and Bo Fell of the same nationality?",
        "supporting_facts": [["Bo Fell", 0], ["Ada Hill", 0]],
        "evidences": [["Bo Fell", "country", "Swedish"], ["Ada Hill", "country", "Swedish"]],
        "qa_pairs": [
            {"question": "Where is Ada Hill from?", "answer": "Ada Hill is from Sweden."},
            {"question": "Where is Bo Fell from?", "answer": "Bo Fell is from Sweden."},
        ],
    }
    row = question_row({**TWO_WIKI, **told})
    assert (row["sub_answers"], row["sub_titles"]) == (["Swedish"] * 2, ["Ada Hill", "Bo Fell"])
    # By the supporting facts' order each would have the other's paragraph.
    assert "sub_questions" not in question_row({**TWO_WIKI, **told, "supporting_facts": [["Bo", 0], ["Ada", 0]]})
    other = [["Bo Fell", "country", "Swedish"], ["Cy Dale", "country", "Danish"]]
    assert "sub_questions" not in question_row({**TWO_WIKI, **told, "evidences": other})


@pytest.mark.parametrize("name", ["musique/sample_200.jsonl", "musique/train_sample.json"])
def test_all_steps_of_the_real_musique_have_the_paragraph_that_they_name(name: str) -> None:
    if not (SHARED / name).is_file():
        pytest.skip(f"no {name} in a folder shared/data beside the repository")
    for example, row in zip(load_questions(SHARED / name), read_rows(SHARED / name), strict=True):
        title_of = {p["idx"]: p["title"] for p in row["paragraphs"]}
        named = [title_of[step["paragraph_support_idx"]] for step in row["question_decomposition"]]
        assert example.sub_titles == named


def test_most_real_questions_of_2wiki_with_pairs_have_steps_with_paragraphs() -> None:
    path = SHARED / "2wiki" / "train_500_sub_questions.json"
    if not path.is_file():
        pytest.skip("no 2wiki/train_500_sub_questions.json in a folder shared/data beside the repository")
    examples = load_questions(path)
    assert sum(bool(example.sub_titles) for example in examples) > 0.7 * len(examples)


def test_json_lines_are_read_under_the_name_json_too(tmp_path: Path) -> None:
    file = tmp_path / "questions.json"
    file.write_text('{"question": "A?", "answer": "a"}\n{"question": "B?", "answer": "b"}\n')
    assert [example.question for example in load_questions(file)] == ["A?", "B?"]


def test_one_object_with_a_list_is_no_json_lines(tmp_path: Path) -> None:
    file = tmp_path / "questions.json"
    file.write_text(json.dumps({"Data": [{"question": "A?", "answer": "a"}]}) + "\n")
    assert len(load_questions(file)) == 1


def test_the_files_of_flashrag_are_known(tmp_path: Path) -> None:
    file = tmp_path / "dev.jsonl"
    file.write_text(json.dumps({"id": "dev_0", "question": "A?", "golden_answers": ["a", "an a"], "metadata": {}}))
    assert load_questions(file)[0].answers == ["a", "an a"]


def test_a_pair_of_2wiki_has_the_triple_whose_object_it_answers_and_no_other_pair_has() -> None:
    pairs = [{**TWO_WIKI["qa_pairs"][0], "question": "Who directed it?"}, TWO_WIKI["qa_pairs"][1]]
    row = question_row({**TWO_WIKI, "evidences": TWO_WIKI["evidences"][::-1], "qa_pairs": pairs})
    assert row["sub_answers"] == ["Reeves Hill", "3 May 1900"]
    twins = [{"question": f"When was {who} born?", "answer": "In 1900."} for who in ("Ada", "the other")]
    row = question_row(
        {
            **TWO_WIKI,
            "type": "comparison",
            "supporting_facts": [["Ada", 0], ["Bob", 0]],
            "evidences": [["Ada", "born", "1900"], ["Bob", "born", "1900"]],
            "qa_pairs": twins,
        }
    )
    assert row["sub_titles"] == ["Ada", "Bob"]
