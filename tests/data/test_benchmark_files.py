"""A public data set becomes a folder that the other commands take, and no test question is among those to train on."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import raisf
from raisf.data.datasets.catalog import BENCHMARKS
from raisf.data.datasets.draws import DEV, Asked, draw_splits
from raisf.data.datasets.files import MANIFEST, write_dataset
from raisf.data.questions import load_questions
from raisf.optimize.judges.judge_data import relevance_examples
from raisf.utils.errors import InputError
from raisf.utils.files import read_json, read_jsonl, sha256_file, write_json, write_jsonl

Split = Callable[[str, range], Path]


def row(number: int) -> dict[str, Any]:
    """A HotpotQA row; neighbours share a paragraph."""
    titles = [f"Town {number}", f"Town {number + 1}"]
    return {
        "_id": f"h{number}",
        "question": f"Which river is between town {number} and the next?",
        "answer": f"River {number}",
        "type": "comparison" if number % 4 == 0 else "bridge",
        "supporting_facts": [[title, 0] for title in titles],
        "context": [[title, [f"{title} lies on a river.", " It is old."]] for title in titles],
    }


def hub_row(number: int) -> dict[str, Any]:
    """The same row as the hub has it."""
    made = row(number)
    pairs = {"supporting_facts": ("title", "sent_id"), "context": ("title", "sentences")}
    made |= {name: dict(zip(keys, zip(*made[name], strict=True), strict=True)) for name, keys in pairs.items()}
    return {"id": made.pop("_id"), **made}


@pytest.fixture
def file(tmp_path: Path) -> Split:
    def write(name: str, numbers: range) -> Path:
        write_json(tmp_path / name, [row(number) for number in numbers])
        return tmp_path / name

    return write


def questions_of(folder: Path, split: str) -> set[str]:
    return {example.question for example in load_questions(folder / f"{split}.jsonl")}


def test_a_data_set_is_not_made_out_of_the_folder_that_it_replaces(file: Split, tmp_path: Path):
    """A smaller draw out of its own train.jsonl cost the whole of it, the test split and the corpus."""
    out = tmp_path / "out"
    write_dataset("hotpotqa", out, files={"train": file("train.json", range(40))}, progress=False)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    with pytest.raises(InputError, match=r"train\.jsonl lies in .*out, which is replaced as a whole.*another folder"):
        write_dataset("hotpotqa", out, files={"train": out / "train.jsonl"}, n=5, progress=False)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_splits_that_would_be_gone_are_told(file: Split, tmp_path: Path):
    """Who ran it once a split had the last one alone, and the corpus without the others' paragraphs."""
    source, out = file("train.json", range(40)), tmp_path / "out"
    write_dataset("hotpotqa", out, files={"train": source}, progress=False)
    with pytest.raises(InputError, match=r"out has train\.jsonl and dev\.jsonl, which would be gone: give all splits"):
        write_dataset("hotpotqa", out, files={"test": source}, progress=False)


def test_a_local_file_becomes_test_questions_and_their_corpus(file: Split, tmp_path: Path):
    source, out = file("hotpot_dev_distractor_v1.json", range(40)), tmp_path / "out"
    about = write_dataset("hotpotqa", out, files={"test": source}, progress=False)
    assert sorted(path.name for path in out.iterdir()) == ["corpus.jsonl", MANIFEST, "test.jsonl"]
    examples = load_questions(out / "test.jsonl")
    drawn = {example.id: example.toDict() for example in examples}
    assert drawn == {example.id: example.toDict() for example in load_questions(source)} and len(examples) == 40
    corpus = list(read_jsonl(out / "corpus.jsonl"))
    assert [passage["id"] for passage in corpus] == [f"p{n}" for n in range(1, 42)]
    assert corpus[0] == {"id": "p1", "title": "Town 0", "text": "Town 0 lies on a river. It is old."}
    assert read_json(out / MANIFEST) == about
    assert about["corpus"] == {"passages": 41, "questions": 40, "with_all_gold": 40, "without_paragraphs": 0}
    assert about["splits"]["test"] == {
        "questions": 40,
        "of": 40,
        "repeated": 0,
        "left_out": 0,
        "answers_like_lists": 0,
        "kinds": {"bridge": 30, "comparison": 10},
        "from": {"file": source.name, "sha256": sha256_file(source)},
    }


def test_dev_comes_out_of_train_and_neither_holds_a_test_question(file: Split, tmp_path: Path):
    out = tmp_path / "out"
    files = {"train": file("train.json", range(60)), "test": file("dev.json", range(50, 80))}
    about = write_dataset("hotpotqa", out, files=files, progress=False)
    train, dev, test = (questions_of(out, split) for split in ("train", "dev", "test"))
    assert len(test) == 30 and len(dev) == 6 and len(train) == 60 - 10 - 6
    assert not train & dev and not (train | dev) & test
    assert about["splits"]["train"]["left_out"] + about["splits"]["dev"]["left_out"] == 10
    assert about["splits"]["dev"]["from"] == about["splits"]["train"]["from"]


def test_the_first_questions_of_a_split_are_a_sample_of_it(file: Split, tmp_path: Path):
    """MuSiQue is sorted by hops: the first 200 of its test questions, of all of them, were of two hops each."""
    files = {"train": file("train.json", range(60)), "test": file("dev.json", range(60, 100))}
    write_dataset("hotpotqa", tmp_path / "all", files=files, progress=False)
    write_dataset("hotpotqa", tmp_path / "some", files=files, n=5, progress=False)
    for split in ("train", "dev", "test"):
        whole, some = (load_questions(tmp_path / name / f"{split}.jsonl") for name in ("all", "some"))
        assert [one.id for one in whole][:5] == [one.id for one in some]
        assert [one.id for one in whole] != sorted((one.id for one in whole), key=lambda name: int(name[1:]))
    write_json(tmp_path / "turned.json", [row(number) for number in reversed(range(60, 100))])
    write_dataset("hotpotqa", tmp_path / "copy", files={"test": tmp_path / "turned.json"}, progress=False)
    assert (tmp_path / "copy" / "test.jsonl").read_bytes() == (tmp_path / "all" / "test.jsonl").read_bytes()


def test_a_dev_file_of_its_own_is_taken_whole(file: Split, tmp_path: Path):
    files = {"train": file("train.json", range(20)), "dev": file("dev.json", range(15, 30))}
    write_dataset("hotpotqa", tmp_path / "out", files=files, progress=False)
    assert len(questions_of(tmp_path / "out", "dev")) == 15
    assert len(questions_of(tmp_path / "out", "train")) == 15


def test_a_dev_file_gives_up_what_test_holds(file: Split, tmp_path: Path):
    """The same file as dev and as test was taken twice, and thresholds were fitted on the test questions."""
    files = {"dev": file("dev.json", range(10, 30)), "test": file("test.json", range(25, 40))}
    about = write_dataset("hotpotqa", tmp_path / "out", files=files, n=12, progress=False)
    assert not questions_of(tmp_path / "out", "dev") & {row(number)["question"] for number in range(25, 40)}
    assert about["splits"]["dev"]["questions"] == 12 and about["splits"]["test"]["left_out"] == 0
    whole = write_dataset("hotpotqa", tmp_path / "out", files=files, progress=False)
    assert whole["splits"]["dev"]["left_out"] == 5
    with pytest.raises(InputError, match="no question is left for dev"):
        write_dataset("hotpotqa", tmp_path / "out", files={**files, "dev": files["test"]}, progress=False)


def test_who_says_what_is_alike_is_asked(file: Split, tmp_path: Path):
    files = {"train": file("train.json", range(20)), "test": file("dev.json", range(20, 30))}
    even = {row(number)["question"] for number in range(0, 20, 2)}
    alike = lambda ours, theirs: even.intersection(ours)  # noqa: E731
    write_dataset("hotpotqa", tmp_path / "out", files=files, alike=alike, progress=False)
    assert not questions_of(tmp_path / "out", "train") & even


@settings(max_examples=60, deadline=None)
@given(
    order=st.permutations(range(40)),
    n=st.integers(1, 30),
    seed=st.integers(0, 5),
    shared=st.integers(0, 15),
)
def test_a_draw_is_the_same_from_every_copy_and_grows(order: list[int], n: int, seed: int, shared: int):
    def asked(numbers: Any) -> list[Asked]:
        return [Asked(place, f"question {number}") for place, number in enumerate(numbers, start=1)]

    test = asked(range(40 - shared, 60))
    mixed = {"train": asked(order), "test": test}
    drawn = [
        {split: [a.question for a in draw.questions] for split, draw in draws.items()}
        for draws in (
            draw_splits(mixed, {"train", "test"}, n, seed),
            draw_splits({"train": asked(range(40)), "test": test}, {"train", "test"}, n, seed),
            draw_splits(mixed, {"train", "test"}, n + 1, seed),
        )
    ]
    assert drawn[0] == drawn[1]
    assert all(drawn[2][split][:n] == drawn[0][split] for split in ("train", "test"))
    assert len(drawn[0]["train"]) == min(n, 40 - shared)
    fewer, more = (draw_splits(mixed, {"train", "dev", "test"}, size, seed) for size in (n, n + 1))
    for name in ("train", "dev", "test"):  # what a small draw trains on is not what a larger one selects on
        assert more[name].questions[: len(fewer[name].questions)] == fewer[name].questions
    draws = draw_splits(mixed, {"train", "dev", "test"}, None, seed)
    split = {name: {a.question for a in draw.questions} for name, draw in draws.items()}
    assert split["train"] | split["dev"] == {f"question {number}" for number in range(40 - shared)}
    assert len(split["dev"]) == 4 < DEV and not split["train"] & split["dev"]


def test_another_seed_draws_others(file: Split, tmp_path: Path):
    source = file("dev.json", range(40))
    drawn = []
    for seed in (1, 2, 1):
        about = write_dataset("hotpotqa", tmp_path / "o", files={"test": source}, n=10, seed=seed, progress=False)
        drawn.append(questions_of(tmp_path / "o", "test"))
        assert about["seed"] == seed and about["n"] == 10
    assert drawn[0] == drawn[2] != drawn[1]
    assert about["corpus"]["questions"] == about["corpus"]["with_all_gold"] == 10


def test_the_facts_of_strategyqa_are_a_corpus_whose_gold_nobody_knows(tmp_path: Path):
    """The titles of its evidence are Wikipedia's; a fact that stands under one by chance would be taken for gold."""
    rows = [
        {
            "qid": f"s{number}",
            "term": f"Town {number}",
            "question": f"Could a ship reach town {number}?",
            "answer": number % 2 == 0,
            "facts": [f"Town {number} lies on a river.", f"Ships sail river {number}."],
            "decomposition": [f"Which river is town {number} on?", "Do ships sail #1?"],
            "evidence": [[[[f"Town {number}-1"]], ["operation"]]],
        }
        for number in range(10)
    ]
    source, out = tmp_path / "strategyqa_train.json", tmp_path / "o"
    write_json(source, rows)
    assert load_questions(source)[3].gold_titles == ["Town 3"], "for an index of Wikipedia"
    about = write_dataset("strategyqa", out, files={"test": source}, progress=False)
    assert about["corpus"] == {"passages": 20, "questions": 10, "with_all_gold": 0, "without_paragraphs": 0}
    examples = load_questions(out / "test.jsonl")
    assert all(not example.get("gold_titles") and len(example.sub_questions) == 2 for example in examples)

    index = raisf.index(read_jsonl(out / "corpus.jsonl"), engine="bm25")
    assert relevance_examples(examples, index, 5) == [], "so a teacher may say which are relevant"


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of a repository in the hub's layout, with two configurations."""
    import datasets
    import pyarrow as pa
    import pyarrow.parquet as pq

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    folder = tmp_path / "hotpot_qa"
    lines = ["---", "configs:"]
    for config in ("distractor", "fullwiki"):
        (folder / config).mkdir(parents=True)
        lines += [f"- config_name: {config}", "  data_files:"]
        for split, numbers in (("train", range(30)), ("validation", range(30, 45))):
            name = f"{config}/{split}-00000-of-00001.parquet"
            pq.write_table(pa.Table.from_pylist([hub_row(number) for number in numbers]), folder / name)
            lines += [f"  - split: {split}", f"    path: {config}/{split}-*"]
    (folder / "README.md").write_text("\n".join([*lines, "---", ""]))
    return folder


def test_the_hubs_copy_gives_the_same_questions_as_the_original_files(repository: Path, file: Split, tmp_path: Path):
    about = write_dataset(
        "hotpotqa", tmp_path / "hub", hub=str(repository), config="distractor", n=10, seed=3, progress=False
    )
    files = {"train": file("train.json", range(30)), "test": file("dev.json", range(30, 45))}
    write_dataset("hotpotqa", tmp_path / "own", files=files, n=10, seed=3, progress=False)
    for name in ("train.jsonl", "dev.jsonl", "test.jsonl", "corpus.jsonl"):
        assert (tmp_path / "hub" / name).read_text() == (tmp_path / "own" / name).read_text()
    origin = about["splits"]["test"]["from"]
    assert origin["config"] == "distractor" and origin["split"] == "validation" and origin["revision"]
    assert about["splits"]["train"]["from"]["split"] == "train"


def test_one_split_alone_can_be_had(repository: Path, tmp_path: Path):
    about = write_dataset(
        "hotpotqa", tmp_path / "o", hub=str(repository), config="fullwiki", splits=["test"], progress=False
    )
    assert list(about["splits"]) == ["test"] and about["splits"]["test"]["questions"] == 15
    assert not (tmp_path / "o" / "train.jsonl").exists()


@pytest.mark.parametrize(("split", "written"), [("validation", ["test"]), ("train", ["train", "dev"])])
def test_of_a_set_with_one_split_that_one_is_written_if_nobody_names_any(split: str, written: list, tmp_path: Path):
    """PopQA has one on the hub: the user was told to leave out a split that she had not named."""
    (tmp_path / "hub").mkdir()
    write_jsonl(tmp_path / "hub" / f"{split}.jsonl", [hub_row(number) for number in range(9)])
    made = write_dataset("hotpotqa", tmp_path / "o", hub=str(tmp_path / "hub"), progress=False)["splits"]
    assert list(made) == written and sum(one["questions"] for one in made.values()) == 9


def test_training_questions_alone_hold_none_of_the_test_split_that_is_not_written(tmp_path: Path):
    """What was learnt from them could be reported on the test split that is had later."""
    (folder := tmp_path / "hub").mkdir()
    for split, numbers in (("train", range(30)), ("validation", range(20, 35))):
        write_jsonl(folder / f"{split}.jsonl", [hub_row(number) for number in numbers])
    about = write_dataset("hotpotqa", tmp_path / "o", hub=str(folder), splits=["train"], progress=False)
    assert list(about["splits"]) == ["train", "dev"]
    learnt = questions_of(tmp_path / "o", "train") | questions_of(tmp_path / "o", "dev")
    assert learnt == {row(number)["question"] for number in range(20)}


@pytest.mark.parametrize("name", BENCHMARKS)
def test_without_a_hub_the_other_ways_are_named(name: str, tmp_path: Path):
    with pytest.raises(InputError) as caught:
        write_dataset(name, tmp_path / "o", progress=False)
    message = str(caught.value)
    assert BENCHMARKS[name].hub in message and BENCHMARKS[name].files in message
    assert "--from FILE" in message and "--hub FOLDER" in message
    assert not (tmp_path / "o").exists()


def test_a_repository_without_that_configuration_says_which_there_are(repository: Path, tmp_path: Path):
    with pytest.raises(InputError, match=r"distractor.*fullwiki.*--from FILE"):
        write_dataset("hotpotqa", tmp_path / "o", hub=str(repository), config="nope", progress=False)


def test_a_broken_row_leaves_the_old_folder_as_it_was(file: Split, tmp_path: Path):
    out = tmp_path / "out"
    write_dataset("hotpotqa", out, files={"test": file("good.json", range(5))}, progress=False)
    before = (out / MANIFEST).read_bytes()
    broken = tmp_path / "broken.json"
    for second, message in (
        ({"question": "q"}, "question 2: 'answer'"),
        ({**row(2), "context": 3}, "question 2: expected"),
        ({**row(2), "context": [*row(2)["context"], ["Town 9", [None]]]}, "question 2: a paragraph is neither"),
        ({**row(2), "context": [["Town 2", ["\ud800"]]]}, "question 2: 'utf-8' codec"),
        ({**row(2), "question": "Who \ud800?"}, "question 2: not valid Unicode"),
    ):
        broken.write_text(json.dumps([row(1), second]))
        with pytest.raises(InputError, match=rf"broken\.json, {message}"):
            write_dataset("hotpotqa", out, files={"test": broken}, progress=False)
    assert (out / MANIFEST).read_bytes() == before
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_repeated_rows_count_once_and_a_shared_id_is_refused(tmp_path: Path):
    # The reading part of TriviaQA has a question once for the web and once for Wikipedia.
    write_jsonl(tmp_path / "r.jsonl", [row(1), row(2), row(1)])
    about = write_dataset("hotpotqa", tmp_path / "o", files={"test": tmp_path / "r.jsonl"}, progress=False)
    assert about["splits"]["test"]["questions"] == 2 and about["splits"]["test"]["repeated"] == 1
    write_jsonl(tmp_path / "r.jsonl", [row(1), row(2), row(3) | {"_id": "h1"}])
    with pytest.raises(InputError, match="questions 1 and 3 share the id 'h1'"):
        write_dataset("hotpotqa", tmp_path / "o", files={"test": tmp_path / "r.jsonl"}, progress=False)
    write_jsonl(tmp_path / "r.jsonl", [row(1), row(2), row(1) | {"answer": "another annotator's"}])
    with pytest.raises(InputError, match="share the id 'h1', and have other answers: put all answers"):
        write_dataset("hotpotqa", tmp_path / "o", files={"test": tmp_path / "r.jsonl"}, progress=False)


def test_what_cannot_be_written_is_told(file: Split, tmp_path: Path):
    source = file("dev.json", range(5))
    with pytest.raises(InputError, match="unknown data set 'squad': choose nq, triviaqa"):
        write_dataset("squad", tmp_path / "o", files={"test": source})
    with pytest.raises(InputError, match=r"no file at .*nowhere\.json"):
        write_dataset("hotpotqa", tmp_path / "o", files={"test": tmp_path / "nowhere.json"})
    with pytest.raises(InputError, match=r"dev\.json, question 1: a row of hotpotqa, not of musique"):
        write_dataset("musique", tmp_path / "o", files={"test": source}, progress=False)
    for one in (own := row(1) | {"level": "hard"}, {"question": "Who?", "golden_answers": ["Ada"], "metadata": own}):
        write_jsonl(tmp_path / "levels.jsonl", [one])
        with pytest.raises(InputError, match=r"levels\.jsonl, question 1: a row of hotpotqa, not of 2wiki"):
            write_dataset("2wiki", tmp_path / "o", files={"test": tmp_path / "levels.jsonl"}, progress=False)
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(InputError, match=r"empty\.jsonl holds no questions"):
        write_dataset("hotpotqa", tmp_path / "o", files={"test": tmp_path / "empty.jsonl"}, progress=False)
    with pytest.raises(InputError, match="no question is left for train"):
        write_dataset("hotpotqa", tmp_path / "o", files={"train": source, "test": source}, progress=False)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("x")
    with pytest.raises(InputError, match="holds other things"):
        write_dataset("hotpotqa", tmp_path / "full", files={"test": source}, progress=False)
