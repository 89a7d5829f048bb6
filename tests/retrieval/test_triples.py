"""What a checkpoint is trained on is what the user's files say: right passages, wrong ones that are wrong, no leaks."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raisf.data.questions import load_questions
from raisf.retrieval.engines.base import Index
from raisf.retrieval.index import build_index
from raisf.retrieval.passage import Passage
from raisf.retrieval.training import triples as module
from raisf.retrieval.training.triples import (
    HARD,
    Triple,
    brought_passages,
    check_triples,
    known_items,
    question_triples,
)
from raisf.utils.errors import InputError

LONG = Passage(
    "long",
    "The lighthouse of Porto Santo was lit in 1887. Its lamp was once fed with whale oil and watched by two families "
    "day and night. “Nobody slept here,” a keeper wrote! Since 1998 it has been steered from the mainland by radio.",
    "Porto Santo lighthouse",
)


@pytest.fixture(scope="module")
def index(passages: list[Passage], tmp_path_factory: pytest.TempPathFactory) -> Index:
    return build_index([*passages, LONG], tmp_path_factory.mktemp("triples") / "i", "bm25", progress=False)


def question(text: str, answers: list[str], titles: list[str] | None = None, pids: list[str] | None = None) -> Any:
    return SimpleNamespace(question=text, answers=answers, gold_titles=titles or [], gold_pids=pids or [])


def test_each_passage_that_answers_is_learnt_and_none_of_them_counts_as_wrong(index: Index):
    asked = question("Which sea do the Danube and an octopus share?", ["the sea"], ["Danube", "Octopus"])
    made = list(question_triples([asked], index, progress=False))
    texts = {p.title: p.prompt_text for p in index.passages}
    assert [triple.positive for triple in made] == [texts["Danube"], texts["Octopus"]]
    for triple in made:
        assert set(triple.answers) == {texts["Danube"], texts["Octopus"]}
        assert triple.negatives and not set(triple.negatives) & set(triple.answers)


def test_a_title_that_a_question_file_spaces_in_its_own_way_is_met(tmp_path: Path):
    """Gold titles are read with single spaces, and those of the file's own paragraphs were not: nothing was learnt."""
    row = {"_id": "1", "question": "Where does Oss lie?", "answer": "by the Elm", "type": "bridge"}
    row |= {"context": [["Oss  Town", ["Oss lies by the Elm."]], ["Velm", ["Velm is far."]]]}
    row |= {"supporting_facts": [["Oss  Town", 0]]}
    (tmp_path / "hotpot.json").write_text(json.dumps([row]))
    brought = build_index(brought_passages(tmp_path / "hotpot.json"), tmp_path / "i", "bm25", progress=False)
    (triple,) = question_triples(load_questions(tmp_path / "hotpot.json"), brought, progress=False)
    assert triple.positive == "Oss Town | Oss lies by the Elm."


def test_a_passage_that_holds_the_answer_is_not_taught_to_be_wrong(index: Index):
    texts = {p.title: p.prompt_text for p in index.passages}
    fado = question("Which song is often about the sea?", ["Fado"], pids=["p11"])
    (triple,) = question_triples([fado], index, progress=False)
    assert texts["Octopus"] in triple.negatives
    black_sea = question("Which sea?", ["Black Sea!"], pids=["p11"])
    (triple,) = question_triples([black_sea], index, progress=False)
    assert texts["Danube"] not in triple.negatives and texts["Octopus"] in triple.negatives
    # "yes" is no evidence: a passage is not spared for holding that word.
    index_of_yes = question("Is the sea wide?", ["yes"], pids=["p11"])
    (triple,) = question_triples([index_of_yes], index, progress=False)
    assert texts["Octopus"] in triple.negatives


def test_an_answer_stands_in_a_passage_without_spaces(tmp_path: Path):
    texts = ["绍兴的市花是兰花。", "兰花是很多城市的市花。", "北京的市花是月季。", "芙蓉花"]
    shelf = build_index(map(Passage, "0123", texts), tmp_path / "i", "bm25", progress=False)
    (triple,) = question_triples([question("绍兴的市花?", ["兰花"], pids=["0"])], shelf, progress=False)
    assert texts[1] not in triple.negatives and texts[2] in triple.negatives


def test_a_question_of_another_corpus_gives_nothing(index: Index):
    strange = [question("Who?", ["a"], ["Nowhere"]), question("What?", ["b"], pids=["p999"]), question("How?", ["c"])]
    assert list(question_triples(strange, index, progress=False)) == []


def test_of_a_title_with_several_passages_the_likeliest_is_meant(passages: list[Passage], tmp_path: Path):
    parts = [Passage(f"d{n}", text, "Guide") for n, text in enumerate(["Opening hours.", "The wolf hall.", "Tickets."])]
    index = build_index([*passages, *parts], tmp_path / "i", "bm25", progress=False)
    (triple,) = question_triples([question("Where is the wolf?", ["hall"], ["Guide"])], index, progress=False)
    assert triple.positive == "Guide | The wolf hall."
    assert set(triple.answers) == {p.prompt_text for p in parts}


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1_000))
def test_a_known_item_comes_from_its_passage_and_may_be_missing_there(index: Index, seed: int):
    texts = {p.prompt_text: p for p in index.passages}
    made = list(known_items(index, 20, seed, progress=False))
    assert made == list(known_items(index, 20, seed, progress=False))
    assert len({triple.answers for triple in made}) == len(made) <= len(texts)
    for triple in made:
        (whole,) = triple.answers
        passage = texts[whole]
        assert triple.query in f"{passage.title} {passage.text}" and triple.query.strip()
        assert triple.positive.startswith(f"{passage.title} | ") and len(triple.positive) <= len(whole)
        assert whole not in triple.negatives and len(triple.negatives) <= HARD
        if triple.positive != whole:
            assert triple.query not in triple.positive and len(triple.positive.split()) >= module.LONGEST


def test_known_items_are_of_all_kinds(index: Index):
    made = [triple for seed in range(60) for triple in known_items(index, 20, seed, progress=False)]
    ours = [triple for triple in made if triple.answers == (LONG.prompt_text,)]
    queries = {triple.query for triple in ours}
    assert LONG.title in queries and "The lighthouse of Porto Santo was lit in 1887." in queries and len(queries) > 9
    assert any("was lit in" not in triple.positive for triple in ours)


def test_odd_passages_make_no_known_items_and_no_trouble(passages: list[Passage], tmp_path: Path):
    odd = [Passage("a", ""), Passage("b", "..."), Passage("c", "\U0001f600"), Passage("d", "水 " * 50)]
    index = build_index([*odd, passages[0]], tmp_path / "i", "bm25", progress=False)
    assert all(triple.query.strip() for triple in known_items(index, 9, progress=False))


def test_question_files_bring_their_paragraphs_once(tmp_path: Path):
    row = {"question": "Q?", "answer": "A", "supporting_facts": [["T", 0]], "context": [["T", ["One.", " Two."]]]}
    musique = {"question": "Q?", "paragraphs": [{"title": "M", "paragraph_text": "Three."}]}
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps(line) for line in (row, row, musique)))
    found = list(brought_passages(tmp_path / "a.jsonl", tmp_path / "a.jsonl"))
    assert [(p.pid, p.title, p.text) for p in found] == [("p1", "T", "One. Two."), ("p2", "M", "Three.")]
    (tmp_path / "b.jsonl").write_text(json.dumps({"context": [["T"]]}))
    with pytest.raises(InputError, match=r"b\.jsonl, question 1"):
        list(brought_passages(tmp_path / "b.jsonl"))


def test_too_little_to_learn_from_is_refused():
    with pytest.raises(InputError, match="1 queries with a known passage are too few"):
        check_triples([Triple("q", "p", (), ("p",)), Triple("q", "r", (), ("r",))])


def test_a_fact_that_no_passage_states_is_learnt_from_no_passage(index: Index):
    """Its subject's passages bear the title that is asked about, and tell of other things."""
    danube = next(p for p in index.passages if p.title == "Danube")
    nowhere = question("Who charted the Danube?", ["Ada"], ["Danube"], [""])
    partly = question("Who charted it, and where does it end?", ["Ada"], ["Danube", "Danube"], ["", danube.pid])
    assert [triple.query for triple in question_triples([nowhere, partly], index, progress=False)] == [partly.question]
