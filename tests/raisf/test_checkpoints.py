"""`raisf colbert train` as a person uses it: from documents to a checkpoint to an index, or one clear line."""

import json
from pathlib import Path

import pytest

from raisf import cli

TEXTS = {
    "Danube": "The Danube is a river in Europe. It rises in the Black Forest and flows into the Black Sea.",
    "Hamlet": "Hamlet is a tragedy written by William Shakespeare. Its hero is the Prince of Denmark.",
    "Octopus": "An octopus has eight arms, three hearts and blue blood. It lives in the sea.",
    "Chess": "Chess is a board game for two players. The game ends when a king is checkmated.",
}


@pytest.fixture
def corpus(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RAISF_CACHE", str(tmp_path_factory.getbasetemp() / "raisf-cache"))
    rows = [{"id": f"p{n}", "title": title, "text": text} for n, (title, text) in enumerate(TEXTS.items())]
    (tmp_path / "corpus.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return tmp_path / "corpus.jsonl"


def write_questions(path: Path, titles: list[str]) -> Path:
    rows = [{"question": f"What about {title}?", "answer": "none", "gold_titles": [title]} for title in titles]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_documents_become_a_checkpoint_and_that_an_index(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    train = write_questions(tmp_path / "train.jsonl", ["Danube", "Hamlet", "Nowhere"])
    words = ["--corpus", corpus, "--questions", train, "--epochs", "1", "--batch-size", "2", "--out", tmp_path / "mine"]
    assert cli.main(["colbert", "train", *map(str, words), "--json"]) == 0
    out, err = capsys.readouterr()
    made = json.loads(out)
    assert made["triples"] == 2 and made["steps"] == 1 and "training, loss" in err
    assert made["questions_without_passage"] == 1
    index = ["index", str(corpus), "--checkpoint", str(tmp_path / "mine"), "--out", str(tmp_path / "index"), "--json"]
    assert cli.main(index) == 0
    assert json.loads(capsys.readouterr().out)["checkpoint"] == str(tmp_path / "mine")
    again = ["--index", tmp_path / "index", "--base", tmp_path / "mine", "--known-items", "3", "--batch-size", "2"]
    assert cli.main(["colbert", "train", *map(str, again), "--epochs", "1", "--out", str(tmp_path / "next")]) == 0
    shown = capsys.readouterr().out
    assert "next: raisf index DOCS --checkpoint" in shown and "warning" in shown


def test_what_is_wrong_is_one_clear_line(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    train = write_questions(tmp_path / "train.jsonl", ["Danube", "Hamlet"])
    strange = write_questions(tmp_path / "strange.jsonl", ["Nowhere"])
    mistakes = {
        "nothing to learn from: give --corpus DOCS or --index DIR": [],
        "the questions bring no passages along": ["--questions", train],
        "none of the 1 questions names a passage of the corpus: gold_pids must be its ids, or gold_titles its titles; "
        "the first question has gold_pids [] and gold_titles ['Nowhere'], the first passage the id": [
            *("--questions", strange, "--corpus", corpus)
        ],
        "2 of the 2 training questions are in the": ["--questions", train, "--corpus", corpus, "--test", train],
        "0 queries with a known passage are too few": ["--corpus", corpus, "--known-items", "0"],
        "learning rate is 0.0: give a number above 0 and below 1": ["--corpus", corpus, "--learning-rate", "0"],
        "no index at": ["--index", tmp_path / "nowhere"],
    }
    for message, words in mistakes.items():
        assert cli.main(["colbert", "train", "--out", str(tmp_path / "new"), *map(str, words)]) == 2
        shown = capsys.readouterr()
        assert message in shown.err and "Traceback" not in shown.err and shown.out == ""
    assert not (tmp_path / "new").exists()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("precious")
    assert cli.main(["colbert", "train", "--corpus", str(corpus), "--out", str(tmp_path / "full")]) == 2
    assert "holds other things" in capsys.readouterr().err
