"""The almanac: articles about the real world are worth asking about only if every gold label holds in them."""

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from raisf import data
from raisf.data.questions import load_questions
from raisf.utils.files import read_jsonl
from raisf.utils.wording import filled

ALMANAC = Path(data.__file__).parent / "almanac"
SPLITS = ("train", "dev", "test")
FIELDS = {
    *("id", "question", "answer", "answers", "kind", "hops", "known"),
    *("gold_titles", "gold_pids", "sub_questions", "sub_answers"),
}
HOPS = {"lookup": {1}, "bridge": {2, 3}, "comparison": {2}, "yesno": {1, 2}}
LOWER = {"first", "earlier", "older", "shorter", "lower"}
HIGHER = {"later", "longer", "higher"}
COMMON = set("a after an and at by did does from has have in into is it of on the there to was were with".split())


@pytest.fixture(scope="module")
def articles() -> dict[str, dict]:
    """Title -> row."""
    return {row["title"]: row for row in read_jsonl(ALMANAC / "corpus.jsonl")}


def rows(name: str) -> list[dict]:
    return list(read_jsonl(ALMANAC / f"{name}.jsonl"))


def told(article: dict) -> str:
    return f"{article['title']}. {article['text']}"


def words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


def steps(row: dict) -> Iterator[tuple[str, str, str]]:
    """Of a question of several facts: the gold title, the filled sub-question and the sub-answer of each."""
    return zip(row["gold_titles"], filled(row["sub_questions"], row["sub_answers"]), row["sub_answers"], strict=True)


def test_articles_are_short_and_told_apart(articles: dict[str, dict]) -> None:
    corpus = rows("corpus")
    assert len(articles) == len({row["id"] for row in corpus}) == len(corpus) >= 200
    assert len({row["text"] for row in corpus}) == len(corpus)
    for row in corpus:
        assert set(row) == {"id", "title", "text"}
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", row["id"]), row["id"]
        assert 60 <= len(row["text"].split()) <= 120, row["title"]
        assert row["text"] == " ".join(row["text"].split())
        assert row["text"].endswith((".", '."', "!", '!"')), row["title"]
        assert row["title"].lower() in row["text"].lower(), "an article must name what it is about"


def test_the_index_keeps_every_article_whole(articles: dict[str, dict]) -> None:
    """Else the gold ids would point at nothing."""
    from raisf.retrieval.corpus.reading import read_documents

    passages = list(read_documents(ALMANAC / "corpus.jsonl"))
    assert [(p.pid, p.title, p.text) for p in passages] == [(a["id"], a["title"], a["text"]) for a in articles.values()]


def test_every_file_loads_and_no_id_comes_twice() -> None:
    loaded = [example for name in (*SPLITS, "unanswerable") for example in load_questions(ALMANAC / f"{name}.jsonl")]
    assert len({example.id for example in loaded}) == len(loaded)
    assert len({example.question for example in loaded}) == len(loaded)
    for name in SPLITS:
        assert [example.toDict() for example in load_questions(ALMANAC / f"{name}.jsonl")] == [
            {**row, "sub_titles": []} for row in rows(name)
        ]


def test_splits_share_no_article() -> None:
    train, dev, test = ({pid for row in rows(split) for pid in row["gold_pids"]} for split in SPLITS)
    assert not train & dev
    assert not train & test
    assert not dev & test


@pytest.mark.parametrize("split", SPLITS)
def test_every_gold_label_is_true(articles: dict[str, dict], split: str) -> None:
    questions = rows(split)
    assert {row["kind"] for row in questions} == set(HOPS)
    for row in questions:
        where = row["question"]
        assert set(row) == FIELDS, where
        assert row["hops"] == len(row["gold_titles"]) == len(set(row["gold_titles"])), where
        assert row["hops"] in HOPS[row["kind"]], where
        assert row["gold_pids"] == [articles[title]["id"] for title in row["gold_titles"]], where
        assert row["answer"] == row["answers"][0], where
        assert len(set(row["answers"])) == len(row["answers"]), where
        assert row["known"] is None, where
        if row["hops"] == 1:
            assert row["sub_questions"] == row["sub_answers"] == [], where
        if row["kind"] == "lookup":
            assert any(answer in told(articles[row["gold_titles"][0]]) for answer in row["answers"]), where
        if row["kind"] == "yesno":
            assert row["answers"] in (["yes"], ["no"]), where
        if row["kind"] == "bridge":
            assert row["sub_answers"][-1] in row["answers"], where


@pytest.mark.parametrize("split", SPLITS)
def test_every_step_of_a_decomposition_is_answered_by_its_article(articles: dict[str, dict], split: str) -> None:
    for row in rows(split):
        where = row["question"]
        if row["hops"] == 1:
            continue
        for place, text in enumerate(row["sub_questions"]):
            assert all(1 <= int(number) <= place for number in re.findall(r"#(\d+)", text)), where
        for place, (title, text, answer) in enumerate(steps(row)):
            assert "#" not in text, where
            assert text.endswith("?"), where
            if row["kind"] == "yesno" and place == row["hops"] - 1 and answer in ("yes", "no"):
                assert answer == row["answer"], where
            else:
                assert answer in told(articles[title]), where
        if row["kind"] == "bridge":
            assert any(re.search(r"#\d", text) for text in row["sub_questions"]), where


@pytest.mark.parametrize("split", SPLITS)
def test_comparisons_come_out_as_the_articles_have_it(articles: dict[str, dict], split: str) -> None:
    """The answer is worked out anew, from the two numbers and the word that says which of them wins."""
    for row in rows(split):
        if row["kind"] != "comparison":
            continue
        numbers = [int(re.search(r"\d+", answer.replace(",", ""))[0]) for answer in row["sub_answers"]]  # type: ignore[index]
        assert numbers[0] != numbers[1], row["question"]
        asked = words(row["question"])
        assert bool(asked & LOWER) != bool(asked & HIGHER), row["question"]
        winner = numbers.index(min(numbers) if asked & LOWER else max(numbers))
        assert any(answer in row["question"] for answer in row["answers"]), row["question"]
        assert any(answer in row["sub_questions"][winner] for answer in row["answers"]), row["question"]
        assert not any(answer in row["sub_questions"][1 - winner] for answer in row["answers"]), row["question"]
        winning = told(articles[row["gold_titles"][winner]]).lower()
        assert any(answer.lower() in winning for answer in row["answers"]), row["question"]


def test_no_question_gives_its_answer_away() -> None:
    for row in (row for split in SPLITS for row in rows(split)):
        assert row["question"].endswith("?"), row["question"]
        if row["kind"] in ("lookup", "bridge"):
            for answer in row["answers"]:
                assert not re.search(rf"\b{re.escape(answer)}\b", row["question"]), (row["question"], answer)


def test_no_question_of_one_split_asks_what_another_asks() -> None:
    """Questions may share their pattern, but then they ask about something else."""
    named = {split: [(row["question"], words(row["question"]) - COMMON) for row in rows(split)] for split in SPLITS}
    for one, other in (("train", "dev"), ("train", "test"), ("dev", "test")):
        for (a, left), (b, right) in product(named[one], named[other]):
            assert left - right and right - left, (a, b)
            assert len(left & right) / len(left | right) < 0.85, (a, b)


def test_yes_and_no_are_both_common() -> None:
    for split in SPLITS:
        answers = [row["answer"] for row in rows(split) if row["kind"] == "yesno"]
        assert 0.3 < answers.count("yes") / len(answers) < 0.7


def test_the_unanswerable_questions_say_so() -> None:
    for row in rows("unanswerable"):
        assert set(row) == {"id", "question", "answers", "kind"}
        assert row["answers"] == ["unknown"]
        assert row["kind"] == "unanswerable"
        assert row["question"].endswith("?")
    assert len(rows("unanswerable")) == 30


def test_the_readme_counts_what_is_there(articles: dict[str, dict]) -> None:
    readme = (ALMANAC / "README.md").read_text(encoding="utf-8")
    assert f"{len(articles)} articles" in readme
    for split in SPLITS:
        counts = [sum(row["kind"] == kind for row in rows(split)) for kind in HOPS]
        assert f"| {split} | {' | '.join(map(str, [*counts, sum(counts)]))} |" in readme
    assert f"{len(rows('unanswerable'))} questions" in readme
