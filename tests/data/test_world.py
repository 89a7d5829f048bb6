"""The closed world: what is measured in it means something only if its gold is exact and its splits are disjoint."""

import hashlib
import json
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.errors import InputError
from data.files import read_json, read_jsonl
from data.world import HOME_SEED, REGION_SIZE, region, regions
from data.world_questions import KINDS, fill, write_world
from data.world_schema import Names


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


PINNED = ("Tisdel Sirfer", "birth year", "1995", "e527415bef3fd60f")


def test_a_larger_world_begins_with_the_smaller_one(world: Path, tmp_path: Path) -> None:
    write_world(tmp_path / "large", seed=HOME_SEED, entities=900)
    small, large = rows(world, "corpus"), rows(tmp_path / "large", "corpus")
    assert large[: len(small)] == small


def test_no_two_entities_share_a_name() -> None:
    names = Names(3)
    for kind in ("person", "town", "film"):
        stems = [names._digits(kind, n) for n in range(60_000)]  # past the end of the two-syllable names
        assert len({tuple(stem) for stem in stems}) == len(stems)
    met = [name for made in regions(HOME_SEED, 5000) for name in made.kinds]
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
    facts = {(row["subject"], row["passage"], row["object"]): row for row in rows(world, "facts")}
    passages = {row["id"]: row for row in rows(world, "corpus")}
    questions = rows(world, split)
    assert {row["kind"] for row in questions} == set(KINDS)
    for row in questions:
        objects = row["sub_answers"] or [row["answer"]]
        used = [facts[key] for key in zip(row["gold_titles"], row["gold_pids"], objects, strict=True)]
        assert row["hops"] == len(used)
        assert row["known"] == all(fact["known"] for fact in used)
        assert row["in_corpus"] == all(fact["in_corpus"] for fact in used)
        for fact in used:
            if fact["in_corpus"]:
                assert passages[fact["passage"]]["title"] == fact["subject"]
                assert fact["object"] in passages[fact["passage"]]["text"]
        filled = fill(row["sub_questions"], row["sub_answers"])
        assert not any("#" in text for text in filled)
        for text, fact in zip(filled, used, strict=False):
            assert fact["subject"] in text
        if row["kind"] in ("bridge", "chain"):
            assert row["answer"] == row["sub_answers"][-1]
        elif row["kind"] == "comparison":
            earlier = row["gold_titles"][int(int(objects[0]) > int(objects[1]))]
            assert row["answer"] == earlier
        elif row["kind"] == "yesno":
            assert row["answer"] == ("yes" if objects[0] == objects[1] else "no")


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


def test_an_interrupted_world_leaves_the_old_one(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "w"
    write_world(target, seed=3, entities=300, counts={"train": 5, "dev": 5, "test": 5})
    before = fingerprint(target)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("data.world_questions.write_json", interrupted)
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
