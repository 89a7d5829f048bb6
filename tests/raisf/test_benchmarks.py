"""`raisf dataset` as a person uses it: from a file to an index and a test set, or one line that says what is wrong."""

import json
from pathlib import Path

import pytest

from raisf import cli


def question(number: int, text: str) -> dict:
    titles = (f"Town {number}", f"River {number}")
    return {
        "_id": f"h{number}",
        "question": text,
        "answer": f"River {number}",
        "type": "bridge",
        "supporting_facts": [[title, 0] for title in titles],
        "context": [[title, [f"{title} is a place.", " It is old."]] for title in titles],
    }


@pytest.fixture
def hotpot(tmp_path: Path) -> Path:
    file = tmp_path / "hotpot_dev_distractor_v1.json"
    file.write_text(json.dumps([question(n, f"Which river flows through town {n}?") for n in range(12)]))
    return file


def run(capsys: pytest.CaptureFixture[str], *argv: object) -> tuple[int, str, str]:
    capsys.readouterr()
    code = cli.main([*map(str, argv)])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_from_a_file_to_an_index(
    hotpot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    out = Path("my data")
    code, shown, _ = run(capsys, "dataset", "hotpotqa", "--from", hotpot, "--n", 5, "--out", out)
    assert code == 0
    shown = " ".join(shown.split())
    assert "5 of 12 questions" in shown and "10 passages" in shown
    assert "next: raisf index 'my data/corpus.jsonl' --out 'indexes/my data'" in shown, "can be copied"
    code, shown, _ = run(capsys, "index", out / "corpus.jsonl", "--engine", "bm25", "--out", tmp_path / "i", "--json")
    assert code == 0 and json.loads(shown)["passages"] == 10


def test_questions_that_bring_no_paragraphs_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """A corpus without the gold of every sixth question looks like a poor retriever."""
    rows = [question(n, f"Which river flows through town {n}?") for n in range(6)]
    (tmp_path / "dev.json").write_text(
        json.dumps([row | ({"context": []} if n < 2 else {}) for n, row in enumerate(rows)])
    )
    argv = ["dataset", "hotpotqa", "--from", tmp_path / "dev.json", "--out", tmp_path / "o"]
    assert "8 passages; 2 questions bring no paragraphs" in run(capsys, *argv)[1]
    about = json.loads(run(capsys, *argv, "--json")[1])["corpus"]
    assert about == {"passages": 8, "questions": 4, "with_all_gold": 4, "without_paragraphs": 2}


def test_answers_that_are_lists_written_as_texts_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """A copy of TriviaQA has them in a seventh of its rows: each counted as wrong, and nothing said so."""
    answers = ["['Ulm', Ulm's town]", ["Bonn", "[b, c]"], "[REC]"]
    rows = [{"question": f"Which town is number {n}?", "answer": answer} for n, answer in enumerate(answers)]
    (tmp_path / "dev.jsonl").write_text("\n".join(map(json.dumps, rows)))
    _, shown, _ = run(capsys, "dataset", "triviaqa", "--from", tmp_path / "dev.jsonl", "--out", tmp_path / "o")
    assert "3 of 3 questions; of 1 the answer is a text like a list" in " ".join(shown.split())


def test_json_holds_what_the_folder_says_of_itself(hotpot: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "data"
    _, shown, _ = run(capsys, "dataset", "hotpotqa", "--from", hotpot, "--split", "train", "--out", out, "--json")
    assert json.loads(shown) == {"out": str(out), **json.loads((out / "dataset.json").read_text())}
    assert [*json.loads(shown)["splits"]] == ["train", "dev"]


def test_what_compiling_would_refuse_is_left_out(hotpot: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    # Nearly the words of a test question: the same names and numbers, one small word more.
    text = "Which one of all the rivers that there are in the land flows through the town of Elmton"
    train = [question(n, f"How old is town {n}?") for n in range(20)] + [question(20, f"{text}?")]
    (tmp_path / "train.json").write_text(json.dumps(train))
    (tmp_path / "test.json").write_text(json.dumps([question(30, f"{text} now?")]))
    files = ["--from", tmp_path / "train.json", "--split", "train", "--from", tmp_path / "test.json", "--split", "test"]
    _, shown, _ = run(capsys, "dataset", "hotpotqa", *files, "--out", tmp_path / "o", "--json")
    splits = json.loads(shown)["splits"]
    assert splits["train"]["left_out"] + splits["dev"]["left_out"] == 1
    assert splits["train"]["questions"] + splits["dev"]["questions"] == 20


def test_what_is_wrong_is_one_clear_line(hotpot: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    broken = tmp_path / "broken.json"
    broken.write_text('[\n{"_id": "a", "question": "Who?", "answer": "She"},\n{"_id": "b", "question"\n]')
    unanswered = tmp_path / "hotpot_test_fullwiki_v1.json"
    unanswered.write_text('[{"_id": "a", "question": "Who?", "context": []}]')
    mistakes = {
        "broken.json, line 4: not JSON": ["--from", broken],
        "hotpot_test_fullwiki_v1.json, question 1: 'answer'": ["--from", unanswered],
        "no file at": ["--from", tmp_path / "nowhere.json"],
        "is a folder; give a file in it": ["--from", tmp_path],
        "found 2 files and no split: write --from FILE --split train --from FILE --split test": [
            "--from",
            hotpot,
            "--from",
            broken,
        ],
        "found 2 files and test, test": ["--from", hotpot, "--split", "test", "--from", broken, "--split", "test"],
        "--config is for the hub": ["--from", hotpot, "--config", "fullwiki"],
        "with --from FILE": [],
        "nowhere: ": ["--hub", tmp_path / "nowhere"],
    }
    for message, argv in mistakes.items():
        code, shown, told = run(capsys, "dataset", "hotpotqa", *argv, "--out", tmp_path / "o")
        error = told[told.index("error: ") :]
        assert (code, shown) == (2, "") and message in error and error.count("\n") == 1
    assert not (tmp_path / "o").exists()
