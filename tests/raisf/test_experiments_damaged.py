"""If these failed, a power cut would cost what is kept of an experiment, or a row of its table."""

import json
from pathlib import Path

import pytest

from raisf.experiments.opening import LMChoice
from raisf.experiments.workspace import Workspace
from raisf.retrieval.index import open_folder
from raisf.utils.errors import InputError
from raisf.utils.files import write_jsonl


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A corpus that holds a training question, and the questions."""
    towns = {"a": "Di was born in Rome.", "b": "Where was Ed born? In Bonn.", "c": "Flo was born in Oslo."}
    write_jsonl(tmp_path / "corpus.jsonl", ({"id": name, "text": text} for name, text in towns.items()))
    for split, name, answer in (("test", "Di", "Rome"), ("train", "Ed", "Bonn"), ("dev", "Flo", "Oslo")):
        write_jsonl(tmp_path / f"{split}.jsonl", [{"question": f"Where was {name} born?", "answer": answer}])
    return tmp_path


def begun(data: Path) -> Workspace:
    return Workspace(data / "out", data, lm=LMChoice("pocket"), engine="bm25")


def test_a_damaged_index_is_made_again_as_the_experiment_makes_it(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its rows were left out, and the index that the message advised would have held the prompts' questions."""
    path = Path(begun(data).index())
    whole = open_folder(path).manifest
    assert whole.passages == 2
    for name in ("manifest.json", f"{whole.words}/vocab.index.json"):
        (path / name).write_text("")
        caplog.clear()
        workspace = begun(data)
        workspace.index()
        assert open_folder(path).manifest.corpus_sha256 == whole.corpus_sha256 and workspace.indexes.left_out == 1
        assert f"the index {path} is damaged: it is made again" in caplog.text
    caplog.clear()
    begun(data).index()
    assert not caplog.records


def test_how_many_passages_were_left_out_is_counted_again_where_it_is_lost(
    data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept = Path(begun(data).index()).with_name("index-bm25-left-out.json")
    kept.write_text("")
    for _ in range(2):
        workspace = begun(data)
        workspace.index()
        assert workspace.indexes.left_out == 1
    assert caplog.text.count(f"{kept} cannot be read: its passages are counted again") == 1


def test_who_knows_what_a_folder_was_made_of_goes_on_where_the_file_that_says_so_is_damaged(data: Path) -> None:
    begun(data).index()
    stamp = data / "out/made/data.json"
    stamp.write_text("")
    with pytest.raises(InputError, match=r"data\.json cannot be read: delete it if all in .* was made of"):
        begun(data)
    stamp.unlink()
    begun(data)
    write_jsonl(data / "train.jsonl", [{"question": "Who?", "answer": "Gus"}])
    with pytest.raises(InputError, match="holds experiments on other data"):
        begun(data)


def test_an_index_of_another_version_and_what_is_none_are_left_as_they_are(data: Path) -> None:
    path = Path(begun(data).index())
    manifest = path / "manifest.json"
    whole = json.loads(manifest.read_text("utf-8"))
    manifest.write_text(json.dumps({**whole, "format": 99}))
    with pytest.raises(InputError, match=r"has format 99.* or delete .*index-bm25: it is then made again"):
        begun(data).index()
    assert json.loads(manifest.read_text("utf-8"))["format"] == 99
    manifest.unlink()
    with pytest.raises(InputError, match=r"or delete .*index-bm25: it is then made again"):
        begun(data).index()
