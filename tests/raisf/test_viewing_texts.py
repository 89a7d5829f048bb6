"""`raisf view`: where the texts of passages come from, which records leave out."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from raisf import cli
from raisf.evaluation.records import meta_path
from raisf.utils.errors import InputError
from raisf.utils.files import write_json
from raisf.viewing.view import View


def test_passages_texts_come_from_the_index_that_was_searched(
    make_home: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = make_home(train=4, dev=4, test=4)
    out = home / "r.jsonl"
    test = ["--test", str(home / "world/test.jsonl"), "--limit", "2"]
    assert cli.main(["eval", "--program", "rag", "--index", str(home / "index"), *test, "--out", str(out)]) == 0
    assert not View([out]).texts
    block = View([out], home / "index").block(0)
    pids = {one["pid"] for (tree,) in block["trees"] for one in tree["root"]["passages"]}
    (texts,) = block["texts"].values()
    assert pids == texts.keys() and all(text for _, text in texts.values())
    other = tmp_path / "other"
    (tmp_path / "a.md").write_text("# A\n\nAnother corpus.")
    assert cli.main(["index", str(tmp_path / "a.md"), "--engine", "bm25", "--out", str(other)]) == 0
    with pytest.raises(InputError, match="not the index that these runs searched"):
        View([out], other)
    beside = tmp_path / "beside.jsonl"
    pocket = ["--lm", "pocket"]  # this one is no closed world: SmolLM2 would be asked
    assert cli.main(["eval", "--program", "rag", "--index", str(other), *test, *pocket, "--out", str(beside)]) == 0
    both = View([out, beside], home / "index")
    assert [bool(run["texts"]) for run in both.summary["runs"]] == [True, False], "another corpus may use the same ids"
    with monkeypatch.context() as held:
        given = list[bool]()
        held.setattr("raisf.viewing.view.judge_errors", lambda record, texts, program: given.append(bool(texts)) or {})
        View([out, beside], home / "index")
    assert given == [True, True, False, False], "nor are its judges held to the other's texts"
    assert View([out]).lacks_texts and not View([out], home / "index").lacks_texts
    report = home / "reports/a"
    (report / "records").mkdir(parents=True)
    (report / "table1").mkdir()
    for file in (out, meta_path(out)):
        shutil.copy(file, report / "records")
    write_json(report / "results.json", {"facts": {"index": "index"}})
    assert View([report]).texts, "where the command ran that names it, whoever looks from elsewhere"
    second = tmp_path / "reports/a"
    (second / "records").mkdir(parents=True)
    for file in (beside, meta_path(beside)):
        shutil.copy(file, second / "records")
    write_json(second / "results.json", {"facts": {"index": str(other)}})
    view = View([report, second])
    assert len(view.texts) == 2 and not view.lacks_texts, "each run has those of the index that it searched"
    assert [run["texts"] for run in view.summary["runs"]] == [*view.block(0)["texts"]]
    write_json(report / "results.json", {"facts": {"index": "reports/../index, index"}})
    assert View([report]).texts, "each artifact of a comparison names it in its own way"
    write_json(report / "results.json", {"facts": {"index": "bm25"}})
    write_json(report / "table1/results.json", {"facts": {"index": "gone, index"}, "experiment": "table1"})
    assert View([report]).texts, "an experiment whose rows searched others, too"
    (report / "table1/results.json").unlink()
    assert View([report]).lacks_texts
    shutil.copytree(home / "index", report / "made/index-bm25")
    assert View([report]).texts, "and one that names none, as of real text, has made its own beside the records"
