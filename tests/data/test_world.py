"""The closed world: what is measured in it means something only if its gold is exact and its splits are disjoint."""

import hashlib
import json
import random
import re
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raisf.data.questions import load_questions
from raisf.data.world.files import HOTPOT_PARAGRAPHS, write_world
from raisf.data.world.generator import HOME_REGIONS, HOME_SEED, REGION_SIZE, region, regions
from raisf.data.world.implicit import BEFORE, IMPLICIT
from raisf.data.world.names import Names
from raisf.data.world.questions import KINDS, question_and_facts, questions
from raisf.data.world.schema import RELATIONS
from raisf.utils.errors import InputError
from raisf.utils.files import read_json, read_jsonl
from raisf.utils.wording import filled


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world") / "w"
    write_world(folder, seed=HOME_SEED, entities=600)
    return folder


def rows(world: Path, name: str) -> list[dict]:
    return list(read_jsonl(world / f"{name}.jsonl"))


def fingerprint(folder: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(folder.iterdir())}


def test_the_same_seed_makes_the_same_world(world: Path, tmp_path: Path) -> None:
    write_world(tmp_path / "again", seed=HOME_SEED, entities=600)
    assert fingerprint(tmp_path / "again") == fingerprint(world)
    write_world(tmp_path / "other", seed=8, entities=600)
    assert fingerprint(tmp_path / "other")["corpus.jsonl"] != fingerprint(world)["corpus.jsonl"]


def test_the_world_is_the_one_the_shipped_weights_were_taught(world: Path) -> None:
    """The weights know these facts by heart; a change of the generator that moves them makes the weights worthless."""
    first = next(row for row in read_jsonl(world / "facts.jsonl") if row["known"])
    pinned = hashlib.sha256((world / "facts.jsonl").read_bytes()).hexdigest()
    assert (first["subject"], first["relation"], first["object"], pinned[:16]) == PINNED


PINNED = ("Bis Sirfer", "employer", "Nerso Company", "3d8fb77465c8b5ec")


def test_a_larger_world_begins_with_the_smaller_one(world: Path, tmp_path: Path) -> None:
    write_world(tmp_path / "large", seed=HOME_SEED, entities=900)
    small, large = rows(world, "corpus"), rows(tmp_path / "large", "corpus")
    assert large[: len(small)] == small


def test_no_two_entities_share_a_name() -> None:
    names = Names(3)
    for kind in ("person", "town", "film"):
        stems = [names.stem(kind, n) for n in range(60_000)]  # past the end of the two-syllable stems
        assert len(set(stems)) == len(stems)
    met = [name for made in regions(HOME_SEED, 5000) for name in (*made.kinds, *made.aliases.values())]
    assert len(set(met)) == len(met)


def test_splits_share_no_entity(world: Path) -> None:
    subjects = {
        split: {t for row in rows(world, split) for t in row["gold_titles"]} for split in ("train", "dev", "test")
    }
    assert not subjects["train"] & subjects["dev"]
    assert not subjects["train"] & subjects["test"]
    assert not subjects["dev"] & subjects["test"]


@pytest.mark.parametrize("split", ["train", "dev", "test"])
def test_every_gold_label_is_true(world: Path, split: str) -> None:
    """Answers follow from the facts along the decomposition, and the gold passages state what the corpus holds."""
    facts = {(row["subject"], row["relation"]): row for row in rows(world, "facts")}
    passages = {row["id"]: row for row in rows(world, "corpus")}
    questions = rows(world, split)
    assert {row["kind"] for row in questions} == set(KINDS)
    for row in questions:
        used = [facts[key] for key in zip(row["gold_titles"], row["relations"], strict=True)]
        assert [fact["passage"] if fact["in_corpus"] else "" for fact in used] == row["gold_pids"]
        assert row["hops"] == len(used)
        assert row["known"] == all(fact["known"] for fact in used)
        assert row["in_corpus"] == all(fact["in_corpus"] for fact in used)
        assert row["answerable"] == all(fact["known"] or fact["in_corpus"] for fact in used)
        for fact in used:
            if fact["in_corpus"]:
                assert passages[fact["passage"]]["title"] == fact["subject"]
                assert fact["object"] in passages[fact["passage"]]["text"]
        if row["hops"] > 1:
            assert row["sub_answers"] == [fact["object"] for fact in used]
        asked = filled(row["sub_questions"], row["sub_answers"])
        assert not any("#" in text for text in asked)
        for text, fact in zip(asked, used, strict=False):
            assert fact["subject"] in text
        assert row["answer"] == row["answers"][0] == right_answer(row, used)


def right_answer(row: dict, used: list[dict]) -> str:
    """The answer, worked out from the facts alone."""
    objects = [fact["object"] for fact in used]
    if row["kind"] not in ("comparison", "yesno"):
        return objects[-1]
    if len(used) == 4:
        return "yes" if objects[1] == objects[3] else "no"
    relation = next(r for kind in RELATIONS.values() for r in kind if r.name == used[0]["relation"])
    if row["kind"] == "yesno" and not objects[0].isdigit():
        return "yes" if objects[0] == objects[1] else "no"
    first = int(objects[0]) < int(objects[1])
    if relation.first == "higher":
        first = not first
    if row["kind"] == "comparison":
        return used[0 if first else 1]["subject"]
    return "yes" if first else "no"


def test_the_relations_that_questions_lean_on_exist() -> None:
    """A misspelt relation would fail only when chance drew it."""
    names = {(kind, relation.name) for kind, relations in RELATIONS.items() for relation in relations}
    assert len(names) >= 30
    assert len(RELATIONS) >= 8
    targets = {
        (kind, relation.name): relation.target for kind, relations in RELATIONS.items() for relation in relations
    }
    for implicit in IMPLICIT:
        middle = targets[implicit.kind, implicit.path[0]]
        assert (middle, implicit.path[1]) in names
    assert all(targets[side] == "year" for before in BEFORE for side in (before.a, before.b))
    for relations in RELATIONS.values():
        for relation in relations:
            opening = relation.statements[0]
            assert opening.removeprefix("The ").startswith("{s} "), opening
            assert all("{s}" in text and "{o}" in text for text in relation.statements)
            assert all("{s}" in text for text in relation.questions)


def test_every_kind_of_knowing_occurs(world: Path) -> None:
    """Questions known and readable, readable only, known only, and such that nobody can answer."""
    met = {(row["known"], row["in_corpus"]) for row in rows(world, "test") if row["hops"] == 1}
    assert met == {(True, True), (True, False), (False, True), (False, False)}
    assert {row["answerable"] for row in rows(world, "test")} == {True, False}


def test_the_home_world_has_a_thousand_known_and_a_thousand_unknown_entities() -> None:
    """Fewer, and a know-judge learns names by heart."""
    taught = {}
    for made in regions(HOME_SEED, REGION_SIZE * HOME_REGIONS):
        for fact in made.facts.values():
            assert taught.setdefault(fact.subject, fact.taught) == fact.taught
    assert sum(taught.values()) >= 1000
    assert len(taught) - sum(taught.values()) >= 1000


def test_aliases_are_told_in_the_text_and_accepted_as_answers(world: Path) -> None:
    texts = {row["id"]: row["text"] for row in rows(world, "corpus")}
    trivia = [row for row in rows(world, "test") if row["kind"] == "trivia" and row["in_corpus"]]
    assert trivia
    for row in trivia:
        alias = re.search(r", also known as ([^,]+),", texts[row["gold_pids"][0]])
        assert alias
        assert alias[1] in row["question"]
        assert row["gold_titles"][0] not in row["question"]
    assert any(len(row["answers"]) == 2 for row in rows(world, "test"))


def test_the_hotpot_files_hold_the_gold_sentences(world: Path) -> None:
    """Another system, run on them, must find what supports the answer where the file says."""
    passages = {row["id"]: row["text"] for row in rows(world, "corpus")}
    by_id = {row["id"]: row for row in rows(world, "test")}
    exported = json.loads((world / "hotpot_test.json").read_text())
    assert len(exported) == sum(row["in_corpus"] for row in by_id.values())
    for item in exported:
        row = by_id[item["_id"]]
        context = dict(item["context"])
        assert len(context) == len(item["context"]) == HOTPOT_PARAGRAPHS
        stated = [context[title][number] for title, number in item["supporting_facts"]]
        answers = row["sub_answers"] or [row["answer"]]
        assert all(any(answer in sentence for sentence in stated) for answer in answers)
        assert all(any(sentence in passages[pid] for pid in row["gold_pids"]) for sentence in stated)
    assert len(load_questions(world / "hotpot_test.json")) == len(exported)


def test_no_passage_states_a_fact_that_is_not_in_the_corpus(world: Path) -> None:
    text = {row["id"]: row["text"] for row in rows(world, "corpus")}
    hidden = [row for row in rows(world, "facts") if not row["in_corpus"]]
    assert hidden
    for row in hidden:
        stated = f" {text.get(row['passage'], '')} "
        assert not (row["object"].isdigit() and row["relation"] in stated and f" {row['object']}." in stated)


def test_yes_and_no_are_both_common(world: Path) -> None:
    answers = [row["answer"] for row in rows(world, "train") if row["kind"] == "yesno"]
    assert 0.25 < answers.count("yes") / len(answers) < 0.75


def test_only_the_home_world_is_known() -> None:
    assert any(fact.taught for fact in region(HOME_SEED, 0).facts.values())
    assert any(not fact.taught for fact in region(HOME_SEED, 0).facts.values())
    assert not any(fact.taught for fact in region(HOME_SEED + 1, 0).facts.values())
    assert not any(fact.taught for fact in region(HOME_SEED, 500).facts.values())


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**40), number=st.integers(0, 10**6))
def test_any_region_of_any_world_is_complete(seed: int, number: int) -> None:
    made = region(seed, number)
    assert len(made.kinds) == REGION_SIZE
    for row in made.corpus():
        assert row["title"] in made.kinds
        assert 1 <= row["text"].count(".") <= 6


def test_a_chain_does_not_come_back_to_what_it_has_named() -> None:
    """Its answer would stand in the question, or be known from a step before."""
    for number in range(10):
        made, rng = region(8, number), random.Random(number)
        for kind in ("bridge", "chain") * 30:
            question, facts = question_and_facts(made, kind, rng)
            assert len({*question.gold_titles, question.answer}) == len(facts) + 1


def test_regions_stream() -> None:
    """A million entities are an iterator, not a list."""
    assert len(list(islice(regions(1, 1_000_000), 3))) == 3


def test_a_folder_says_what_it_holds_and_small_worlds_are_refused(world: Path, tmp_path: Path) -> None:
    assert read_json(world / "world.json")["test"] == len(rows(world, "test")) == 500
    with pytest.raises(InputError, match="at least 300 entities"):
        write_world(tmp_path / "small", entities=100)
    with pytest.raises(InputError, match="negative"):
        write_world(tmp_path / "odd", counts={"test": -1})
    assert not (tmp_path / "small").exists()


def test_a_world_too_small_for_the_questions_asked_for_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("raisf.data.world.files.questions", lambda *given: islice(questions(*given), 2))
    write_world(tmp_path / "small", entities=300, counts={"train": 9, "dev": 2, "test": 4})
    assert caplog.messages == ["only 6 of 9 train questions: 300 entities give no more, take a larger world"]


def test_an_interrupted_world_leaves_the_old_one(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "w"
    write_world(target, seed=3, entities=300, counts={"train": 5, "dev": 5, "test": 5})
    before = fingerprint(target)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("raisf.data.world.files.write_json", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_world(target, seed=4, entities=300)
    assert fingerprint(target) == before
    assert [path.name for path in tmp_path.iterdir()] == ["w"]
    assert json.loads((target / "world.json").read_text())["seed"] == 3


def test_a_folder_of_the_users_own_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(InputError, match="holds other things"):
        write_world(tmp_path, entities=300)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"
