"""Whoever brings a public data set in its own format gets its questions, answers, gold titles and decompositions."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raisf.data.questions import load_questions
from raisf.data.rows import read_rows
from raisf.data.schemas import paragraphs, question_row
from raisf.utils.errors import InputError

SHARED = Path(__file__).parents[3] / "shared" / "data"

SENTENCES = {"Ada": ["Ada was born in Elmton.", " She sang."], "Elmton": ["Elmton lies on the Elm River."]}
HOTPOT: dict[str, Any] = {
    "_id": "5a7a06935542990198eaf050",
    "question": "Which river flows through the birthplace of Ada?",
    "answer": "Elm River",
    "type": "bridge",
    "level": "hard",
    "supporting_facts": [["Ada", 0], ["Ada", 1], ["Elmton", 0]],
    "context": [[title, sentences] for title, sentences in SENTENCES.items()],
}
HOTPOT_HUB = {
    **{key: value for key, value in HOTPOT.items() if key != "_id"},
    "id": HOTPOT["_id"],
    "supporting_facts": {"title": ["Ada", "Ada", "Elmton"], "sent_id": [0, 1, 0]},
    "context": {"title": list(SENTENCES), "sentences": list(SENTENCES.values())},
}
TWO_WIKI = {
    **HOTPOT,
    "type": "compositional",
    "context": [["Ada", ["Ada was born in Elmton.", "She sang."]], ["Elmton", SENTENCES["Elmton"]]],
    "entity_ids": "Q1_Q2",
    "evidences": [["Ada", "place of birth", "Elmton"], ["Elmton", "river", "Elm River"]],
    "evidences_id": [["Q1", "place of birth", "Q2"], ["Q2", "river", "Q3"]],
    "answer_id": "Q3",
}
TWO_WIKI_TEXTS = {
    **TWO_WIKI,
    **{key: json.dumps(TWO_WIKI[key]) for key in ("context", "supporting_facts", "evidences")},
}
TWO_WIKI_OBJECTS = {
    **TWO_WIKI,
    "supporting_facts": [{"title": title, "sent_id": sent} for title, sent in HOTPOT["supporting_facts"]],
    "context": [{"title": title, "content": sentences} for title, sentences in TWO_WIKI["context"]],
    "evidences": [{"fact": a, "relation": b, "entity": c} for a, b, c in TWO_WIKI["evidences"]],
}
MUSIQUE: dict[str, Any] = {
    "id": "2hop__1_2",
    "paragraphs": [
        {"idx": 0, "title": "Ada", "paragraph_text": "Ada was born in Elmton. She sang.", "is_supporting": True},
        {"idx": 1, "title": "Ada", "paragraph_text": "Ada is also a song.", "is_supporting": False},
        {"idx": 2, "title": "Elmton", "paragraph_text": "Elmton lies on the Elm River.", "is_supporting": True},
    ],
    "question": "Which river flows through the birthplace of Ada?",
    "question_decomposition": [
        {"id": 1, "question": "Ada >> place of birth", "answer": "Elmton", "paragraph_support_idx": 0},
        {"id": 2, "question": "Which river flows through #1 ?", "answer": "Elm River", "paragraph_support_idx": 2},
    ],
    "answer": "Elm River",
    "answer_aliases": ["the Elm", "Elm River"],
    "answerable": True,
}
TRIVIA: dict[str, Any] = {
    "Answer": {
        "Aliases": ["Elm (river)", "The Elm"],
        "MatchedWikiEntityName": "Elm River",
        "NormalizedAliases": ["elm river", "elm"],
        "NormalizedValue": "elm river",
        "Type": "WikipediaEntity",
        "Value": "Elm River",
    },
    "EntityPages": [{"DocSource": "TagMe", "Filename": "Elmton.txt", "Title": "Elmton"}],
    "Question": "Which river flows through Elmton?",
    "QuestionId": "tc_33",
    "QuestionSource": "http://example.org/",
    "SearchResults": [],
}
TRIVIA_HUB = {
    "question": TRIVIA["Question"],
    "question_id": "tc_33",
    "question_source": "http://example.org/",
    "entity_pages": {"doc_source": [], "filename": [], "title": [], "wiki_context": []},
    "search_results": {"description": [], "filename": [], "rank": [], "title": [], "url": [], "search_context": []},
    "answer": {
        "aliases": ["Elm (river)", "The Elm"],
        "normalized_aliases": ["elm river", "elm"],
        "matched_wiki_entity_name": "",
        "normalized_matched_wiki_entity_name": "",
        "normalized_value": "elm river",
        "type": "WikipediaEntity",
        "value": "Elm River",
    },
}
STRATEGY: dict[str, Any] = {
    "qid": "e0044a7b4d146d611e73",
    "term": "Elmton",
    "description": "A town",
    "question": "Could a ship reach Elmton?",
    "answer": True,
    "facts": ["Elmton lies on the Elm River.", "Ships sail the Elm."],
    "decomposition": ["Which river is Elmton on?", "Do ships sail #1?"],
    "evidence": [
        [[["Elmton-1"]], [["Elm River-12", "Jean-Luc-3"], "operation"]],
        [[["Elmton-4"]], ["no_evidence"]],
    ],
}
BIG_BENCH = {"input": "Could a ship reach Elmton?", "target_scores": {"Yes": 1, "No": 0}, "target": "Yes. The Elm."}
NQ = {"question": "which river flows through elmton", "answer": ["Elm River", "the Elm", "Elm River"]}

POPQA = {
    "id": "4222362",
    "subj": "Elmton",
    "prop": "located next to",
    "question": "What river is Elmton next to?",
    "possible_answers": '["Elm River", "the \\"Elm\\""]',
}

RIVER = {"answers": ["Elm River"], "hops": 2, "gold_titles": ["Ada", "Elmton"]}


def in_flashrag(row: dict[str, Any]) -> dict[str, Any]:
    """The row as FlashRAG's files have it."""
    own = {key: value for key, value in row.items() if key not in ("id", "question", "answer")}
    return {
        "id": "test_0",
        "question": row["question"],
        "golden_answers": row["answer"] if isinstance(row["answer"], list) else [row["answer"]],
        "metadata": own,
    }


def shaped(row: dict[str, Any], name: str) -> str:
    """The row as the data set's file has it."""
    if name == "triviaqa.json":
        return json.dumps({"Data": [row], "Domain": "Web", "VerifiedEval": False, "Version": 1.0}, indent=4)
    if name == "bigbench.json":
        return json.dumps({"canary": "x", "name": "strategyqa", "keywords": ["a"], "examples": [row]}, indent=1)
    if name.endswith(".tsv"):
        lines = io.StringIO()
        csv.writer(lines, delimiter="\t").writerows([row, row.values()])
        return lines.getvalue()
    return json.dumps([row]) if name.endswith(".json") else json.dumps(row) + "\n"


TRIVIA_ROW = {
    "id": "tc_33",
    "answers": ["Elm River", "Elm (river)", "The Elm"],
    "hops": 1,
    "scoring": "triviaqa",
}


@pytest.mark.parametrize(
    ("name", "row", "expected"),
    [
        ("hotpot.json", HOTPOT, {**RIVER, "id": HOTPOT["_id"], "kind": "bridge"}),
        ("hub.jsonl", HOTPOT_HUB, {**RIVER, "id": HOTPOT["_id"], "kind": "bridge"}),
        ("2wiki.json", TWO_WIKI, {**RIVER, "kind": "compositional"}),
        ("2wiki-texts.jsonl", TWO_WIKI_TEXTS, {**RIVER, "kind": "compositional"}),
        ("2wiki-objects.jsonl", TWO_WIKI_OBJECTS, {**RIVER, "kind": "compositional"}),
        (
            "musique.jsonl",
            MUSIQUE,
            {
                **RIVER,
                "id": "2hop__1_2",
                "kind": "2hop",
                "answers": ["Elm River", "the Elm"],
                "sub_questions": ["Ada >> place of birth", "Which river flows through #1 ?"],
                "sub_answers": ["Elmton", "Elm River"],
            },
        ),
        ("triviaqa.json", TRIVIA, TRIVIA_ROW),
        ("hub.jsonl", TRIVIA_HUB, TRIVIA_ROW),
        (
            "strategyqa_train.json",
            STRATEGY,
            {
                "id": "e0044a7b4d146d611e73",
                "answers": ["yes"],
                "kind": "yesno",
                "hops": 2,
                "gold_titles": ["Elmton", "Elm River", "Jean-Luc"],
                "sub_questions": ["Which river is Elmton on?", "Do ships sail #1?"],
            },
        ),
        ("hub.jsonl", {**STRATEGY, "answer": False, "facts": "One text."}, {"answers": ["no"], "kind": "yesno"}),
        ("bigbench.json", BIG_BENCH, {"id": "1", "answers": ["yes"], "kind": "yesno"}),
        ("flashrag.jsonl", in_flashrag(HOTPOT_HUB), {**RIVER, "kind": "bridge"}),
        ("flashrag.jsonl", in_flashrag(MUSIQUE), {**RIVER, "answers": ["Elm River", "the Elm"]}),
        ("flashrag.jsonl", in_flashrag(NQ), {"answers": ["Elm River", "the Elm"], "kind": "question"}),
        ("popqa.jsonl", POPQA, {"id": "4222362", "answers": ["Elm River", 'the "Elm"']}),
        ("popQA.tsv", POPQA, {"id": "4222362", "answers": ["Elm River", 'the "Elm"']}),
        ("NQ-open.dev.jsonl", NQ, {"id": "1", "answers": ["Elm River", "the Elm"], "kind": "question"}),
    ],
)
def test_every_schema_becomes_the_same_form(tmp_path: Path, name: str, row: dict, expected: dict):
    file = tmp_path / name
    file.write_text(shaped(row, name), encoding="utf-8")
    (example,) = load_questions(file)
    assert {key: example[key] for key in expected} == expected
    assert example.question == row.get("question", row.get("Question", row.get("input")))
    assert example.answer == example.answers[0]
    assert list(example.inputs().keys()) == ["question"]


@pytest.mark.parametrize(
    "row", [HOTPOT, HOTPOT_HUB, TWO_WIKI, TWO_WIKI_TEXTS, TWO_WIKI_OBJECTS, in_flashrag(HOTPOT_HUB)]
)
def test_the_paragraphs_are_the_same_in_every_copy(row: dict):
    assert paragraphs(row) == [
        ("Ada", "Ada was born in Elmton. She sang."),
        ("Elmton", "Elmton lies on the Elm River."),
    ]


TITLES = st.lists(st.text(min_size=1, max_size=8).filter(str.strip), min_size=1, max_size=4, unique=True)


@given(TITLES, st.lists(st.text(max_size=12), max_size=4))
def test_whatever_the_texts_are_the_copies_mean_the_same(titles: list[str], sentences: list[str]):
    facts = [[title, number] for number, title in enumerate(titles)]
    original = {**HOTPOT, "supporting_facts": facts, "context": [[title, sentences] for title in titles]}
    hub = {
        **HOTPOT_HUB,
        "supporting_facts": {"title": titles, "sent_id": [*range(len(titles))]},
        "context": {"title": titles, "sentences": [sentences] * len(titles)},
    }
    texts = {**original, **{key: json.dumps(original[key]) for key in ("context", "supporting_facts")}}
    assert question_row(original) == question_row(hub) == question_row(texts)
    assert paragraphs(original) == paragraphs(hub) == paragraphs(texts)
    assert {title for title, _ in paragraphs(original)} <= set(question_row(original)["gold_titles"])


def test_musique_brings_its_paragraphs_strategyqa_its_facts_and_the_others_bring_none():
    assert paragraphs(MUSIQUE)[1] == ("Ada", "Ada is also a song.")
    assert paragraphs(STRATEGY)[1] == ("Elmton", "Ships sail the Elm.")
    assert [paragraphs(row) for row in (TRIVIA, TRIVIA_HUB, BIG_BENCH, NQ)] == [[]] * 4


def test_a_parquet_file_of_the_hub_is_read_as_it_is(tmp_path: Path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = tmp_path / "validation-00000-of-00001.parquet"
    pq.write_table(pa.Table.from_pylist([HOTPOT_HUB]), file)
    assert question_row(next(read_rows(file))) == question_row(HOTPOT_HUB)
    file.write_bytes(b"PAR1 no")
    with pytest.raises(InputError, match=r"00001\.parquet is not a parquet file"):
        list(read_rows(file))


def test_all_answers_of_a_row_count_the_one_first_and_once():
    """Beside `answers` an `answer` was dropped, and so was whatever `possible_answers` held beside either."""
    several = {"answers": ["the Elm", "Elm River"], "golden_answers": ["Elm"], "possible_answers": '["E. River"]'}
    told = question_row({"question": "Which?", "answer": "Elm River", **several})["answers"]
    assert told == ["Elm River", "the Elm", "Elm", "E. River"]
    assert question_row({"question": "Which?", "answers": ["b", "a"], "answer": ""})["answers"] == ["b", "a"]
    for name, value in several.items():
        alone = question_row({"question": "Which?", name: value})["answers"]
        assert alone == (json.loads(value) if isinstance(value, str) else value)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"question": "q", "possible_answers": "Paris"}, "'possible_answers' must be a list, or one as JSON"),
        ({**HOTPOT, "answer": None}, "public test splits come without answers"),
        ({key: value for key, value in MUSIQUE.items() if key != "answer"}, "'answer'"),
        ({**MUSIQUE, "answerable": False}, "musique_ans_v1.0"),
        ({**TRIVIA_HUB, "answer": {"value": "<unk>", "aliases": []}}, "public test splits"),
        ({**TRIVIA, "Question": "  "}, "'question' must be a text"),
        ({**HOTPOT, "supporting_facts": [3]}, "expected pairs of 'title' and 'sent_id'; found [3]"),
        ({**BIG_BENCH, "target_scores": {}}, "'answer'"),
        ({"question": "q", "answers": ["a", [7]]}, "'answers' a list of texts; found ['a', [7]]"),
        ({**STRATEGY, "decomposition": 4}, "not as strategyqa has it"),
        ({**MUSIQUE, "question_decomposition": [{"id": 1}]}, "no 'question' in it, as musique has"),
    ],
)
def test_what_is_no_question_is_named_with_its_number(tmp_path: Path, row: dict, message: str):
    file = tmp_path / "q.json"
    file.write_text(json.dumps([HOTPOT, row]))
    with pytest.raises(InputError, match=r"q\.json, question 2: ") as caught:
        load_questions(file)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("path", "count", "having"),
    [
        ("hotpotqa/distractor_sample.json", 100, "gold_titles"),
        ("hotpotqa/train.jsonl", 300, "gold_titles"),
        ("musique/train_sample.json", 100, "sub_questions"),
        ("strategyqa/bigbench_first1200.json", 1200, "answer"),
    ],
)
def test_real_files_are_read_whole(path: str, count: int, having: str):
    if not (SHARED / path).is_file():
        pytest.skip(f"no {path} in a folder shared/data beside the repository")
    examples = load_questions(SHARED / path)
    assert len(examples) == count
    assert all(example[having] for example in examples)
    for example, row in zip(examples, read_rows(SHARED / path), strict=True):
        assert {title for title, _ in paragraphs(row)}.issuperset(example.gold_titles)


def test_aliases_given_as_one_text_are_a_list_of_one(tmp_path: Path):
    """Else each letter of it was a right answer."""
    file = tmp_path / "t.jsonl"
    file.write_text('{"Question": "Who?", "Answer": {"Value": "A", "Aliases": "xyz"}}\n')
    assert load_questions(file)[0].answers == ["A", "xyz"]


def test_an_empty_line_behind_makes_no_json_lines_of_one_object(tmp_path: Path):
    file = tmp_path / "web-dev.json"
    file.write_text('{"Data": [{"Question": "Who?", "Answer": {"Value": "A"}}]}\n\n')
    assert [example.answers for example in load_questions(file)] == [["A"]]
    file.write_text('{"question": "Who?", "answer": "A", "examples": ["x"]}\n{"question": "Where?", "answer": "B"}\n')
    assert [example.answers for example in load_questions(file)] == [["A"], ["B"]]
    file.write_text('{"question": "Who?", "answer": "A"}\n\n')
    assert [example.answers for example in load_questions(file)] == [["A"]]


def test_a_row_may_name_the_rule_that_its_answers_are_compared_by(tmp_path: Path):
    file = tmp_path / "plain.jsonl"
    file.write_text('{"question": "Who?", "answer": "Jay-Z", "scoring": "triviaqa"}\n', encoding="utf-8")
    assert load_questions(file)[0].scoring == "triviaqa"
    file.write_text('{"question": "Who?", "answer": "Jay-Z", "scoring": "bleu"}\n', encoding="utf-8")
    with pytest.raises(InputError, match="'scoring' must be squad or triviaqa; found 'bleu'"):
        load_questions(file)


def test_flashrags_musique_has_its_gold_in_the_steps(tmp_path: Path):
    """All of it was lost: titles, those of the steps, and paragraphs."""
    golden = [paragraph for paragraph in MUSIQUE["paragraphs"] if paragraph["is_supporting"]]
    steps = zip(MUSIQUE["question_decomposition"], golden, strict=True)
    own = {"question_decomposition": [{**step, "support_paragraph": paragraph} for step, paragraph in steps]}
    row = in_flashrag({"id": "2hop__1_2", "question": MUSIQUE["question"], "answer": "Elm River", **own})
    (tmp_path / "dev.jsonl").write_text(json.dumps(row))
    (example,) = load_questions(tmp_path / "dev.jsonl")
    assert example.gold_titles == example.sub_titles == ["Ada", "Elmton"] and example.hops == 2
    assert paragraphs(row) == [(one["title"], one["paragraph_text"]) for one in golden]
