"""An index is whole or not there, knows what it was made from, and says what is wrong with it."""

import copy
import gc
import json
import shutil
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file, save_file

from raisf.retrieval.encoders.checkpoint import default_checkpoint, find_checkpoint
from raisf.retrieval.encoders.encoder import ColBERTEncoder
from raisf.retrieval.engines.base import Index
from raisf.retrieval.engines.checkpoints import find_again
from raisf.retrieval.engines.dense import DenseEncoder, find_model
from raisf.retrieval.index import EngineName, add_to_index, build_index, open_folder, open_index
from raisf.retrieval.passage import Passage, Retriever
from raisf.retrieval.store.manifest import FORMAT, MANIFEST, PASSAGES
from raisf.utils.errors import InputError
from raisf.utils.files import read_json, write_json
from tests.retrieval.conftest import ENGINES, NEW, error_of


@pytest.fixture(params=ENGINES)
def index(request: pytest.FixtureRequest, made: dict[str, Path], tmp_path: Path) -> Path:
    """A copy of an index of each kind, to be spoilt."""
    return Path(shutil.copytree(made[request.param], tmp_path / "index"))


def test_an_index_opens_elsewhere_and_finds_the_same(index: Path, passages: list[Passage], tmp_path: Path):
    before = open_index(index)
    found = before("Who wrote Hamlet?", 2)
    moved = open_index(index.rename(tmp_path / "moved"))
    assert moved("Who wrote Hamlet?", 2) == found and found[0].title == "Hamlet"
    assert moved.path == tmp_path / "moved" and moved.corpus_hash == before.corpus_hash
    assert isinstance(moved, Retriever)
    assert [(p.pid, p.title, p.text) for p in moved.passages] == [(p.pid, p.title, p.text) for p in passages]


def test_an_index_that_is_open_already_is_shared_and_searches_but_once(index: Path, monkeypatch: pytest.MonkeyPatch):
    one, searched = open_index(index), list[list[str]]()
    hits = type(one)._hits

    def count(self: Index, queries: Sequence[str], k: int, allowed: Any) -> Any:
        searched.append(list(queries))
        return hits(self, queries, k, allowed)

    monkeypatch.setattr(type(one), "_hits", count)
    found = one.search_many(["chess", "Hamlet", "chess"], 2)
    assert searched == [["chess", "Hamlet"]] and found[0] == found[2]
    assert one("chess", 2) == found[0] and len(searched) == 1
    assert open_index(index) is one
    (again,) = one("chess", 1)
    assert again.pid == found[0][0].pid and again.score == pytest.approx(found[0][0].score) and len(searched) == 2
    add_to_index(index, [Passage("new", "Chess has a queen.", "Queens")], progress=False)
    other = open_index(index)
    assert other is not one and "new" in {passage.pid for passage in other("chess queen", 3)}
    assert "new" not in {passage.pid for passage in one("chess queen", 3)}


def test_whoever_may_open_the_folder_may_read_the_index(index: Path):
    allowed = index.stat().st_mode & 0o666
    assert {file.stat().st_mode & 0o666 for file in index.rglob("*") if file.is_file()} == {allowed}


def test_an_index_folder_tells_no_path_of_its_maker_but_that_of_a_checkpoint_folder(tmp_path: Path):
    """Whoever hands an index on tells where a folder named as --checkpoint lay, since it must be found again there."""
    docs, checkpoint = tmp_path / "docs", tmp_path / "mine"
    docs.mkdir()
    (docs / "games.txt").write_text("Chess is a board game for two players.")
    checkpoint.symlink_to(find_model("minilm").path)
    for name, told in (("minilm", "minilm"), (checkpoint, str(checkpoint))):
        build_index(docs, tmp_path / "i", "dense", checkpoint=name, progress=False)
        manifest = read_json(tmp_path / "i" / MANIFEST)
        assert (manifest["checkpoint"], list(manifest["documents"])) == (told, ["games.txt"])
        for file in (tmp_path / "i").rglob("*.json*"):
            text = file.read_text().replace(told, "")
            assert str(tmp_path) not in text and str(Path.home()) not in text


@pytest.mark.parametrize("engine", ENGINES)
def test_the_whole_way_from_a_folder_of_documents(engine: EngineName, tmp_path: Path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "rivers.md").write_text(
        "# Rivers\n## Danube\nIt flows into the Black Sea.\n## Rhine\nIt does not."
    )
    build_index(tmp_path / "docs", tmp_path / "out" / "i", engine, progress=False)
    found = open_index(tmp_path / "out" / "i")("Which one flows into the Black Sea?", 1)
    assert [(p.pid, p.title, p.citation) for p in found] == [("rivers.md#1", "Rivers", "rivers.md, line 2")]


@pytest.mark.parametrize("engine", ENGINES)
def test_one_passage_is_a_corpus_and_k_may_be_larger(engine: EngineName, tmp_path: Path):
    index = build_index([Passage("only", "A lonely text.")], tmp_path / "i", engine, progress=False)
    assert [p.pid for p in index("lonely", 100)] == ["only"]
    with pytest.raises(InputError, match="k is 0"):
        index("lonely", 0)


def test_a_copied_program_searches_the_same_index(made: dict[str, Path]):
    for path in made.values():
        index = open_index(path)
        assert copy.deepcopy({"retriever": index})["retriever"] is index


@pytest.mark.parametrize("engine", ENGINES)
def test_an_interrupted_build_leaves_the_old_index(engine: EngineName, made: dict[str, Path], tmp_path: Path):
    def interrupted() -> Iterator[Passage]:
        yield Passage("new", "Something new.")
        raise KeyboardInterrupt

    out = tmp_path / "index"
    with pytest.raises(KeyboardInterrupt):
        build_index(interrupted(), out, engine, progress=False)
    assert list(tmp_path.iterdir()) == []
    shutil.copytree(made[engine], out)
    with pytest.raises(KeyboardInterrupt):
        build_index(interrupted(), out, engine, progress=False)
    assert [file.name for file in tmp_path.iterdir()] == ["index"]
    assert open_index(out)("chess", 1)[0].title == "Chess"


def test_an_interrupt_while_encoding_leaves_nothing(
    passages: list[Passage], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def interrupt(self: ColBERTEncoder, texts: list[str]) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ColBERTEncoder, "encode_passages", interrupt)
    with pytest.raises(KeyboardInterrupt):
        build_index(passages, tmp_path / "i", progress=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("engine", ENGINES)
def test_a_rebuilt_index_replaces_the_old_one(engine: EngineName, made: dict[str, Path], tmp_path: Path):
    out = Path(shutil.copytree(made[engine], tmp_path / "index"))
    build_index([Passage("new", "Something new.")], out, engine, progress=False)
    assert [p.pid for p in open_index(out)("new", 5)] == ["new"]
    assert [file.name for file in tmp_path.iterdir()] == ["index"]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_folder_with_other_things_is_never_replaced(engine: EngineName, tmp_path: Path):
    (tmp_path / "thesis.txt").write_text("Years of work.")
    with pytest.raises(InputError, match="holds other things"):
        build_index(tmp_path / "thesis.txt", tmp_path, engine, progress=False)
    assert (tmp_path / "thesis.txt").read_text() == "Years of work."


def test_options_that_do_not_exist_are_refused(tmp_path: Path):
    with pytest.raises(InputError, match="unknown engine 'bm52': choose colbert, bm25, dense, hybrid"):
        build_index([Passage("a", "b")], tmp_path / "i", "bm52")  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match="unknown search 'fast': choose auto, exact, plaid"):
        build_index([Passage("a", "b")], tmp_path / "i", search="fast")  # pyright: ignore[reportArgumentType]


def test_no_index_is_told_from_a_wrong_one(tmp_path: Path):
    assert "no index at" in error_of(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    assert "is a file, an index is a folder" in error_of(tmp_path / "file")
    told = error_of(tmp_path)
    assert "is not an index: it has no manifest.json" in told
    assert f"raisf index {tmp_path} --out DIR" in told and "delete" not in told  # they may be someone's documents
    for foreign in ({"name": "web app"}, [1], {"format": "x"}):
        write_json(tmp_path / MANIFEST, foreign)
        assert "is not an index of this program" in error_of(tmp_path)
    (tmp_path / MANIFEST).write_text("{")
    assert "not JSON" in error_of(tmp_path)


def test_another_format_or_kind_is_named(index: Path):
    manifest = read_json(index / MANIFEST)
    write_json(index / MANIFEST, {**manifest, "format": 99})
    assert f"has format 99, this version reads 2 and {FORMAT}" in error_of(index)
    write_json(index / MANIFEST, {**manifest, "kind": "splade"})
    assert "unknown kind, 'splade'" in error_of(index)
    write_json(index / MANIFEST, {"format": FORMAT, "kind": manifest["kind"]})
    assert "damaged" in error_of(index)


def test_changed_passages_are_noticed(index: Path):
    file = index / "segments" / "1" / PASSAGES
    file.write_text(file.read_text().replace("Shakespeare", "Shakespaere"))
    assert "passages.jsonl has changed since the index was made" in error_of(index)
    file.write_text(file.read_text() + " ")
    assert "passages.jsonl has" in error_of(index)
    file.unlink()
    assert "passages.jsonl is missing" in error_of(index)
    shutil.rmtree(index / "segments")
    (index / "segments").touch()
    assert "passages.jsonl is missing" in error_of(index)


def test_a_cut_or_missing_file_is_noticed(index: Path):
    file = next(file for file in sorted(index.rglob("*")) if file.suffix in {".safetensors", ".npy"})
    file.write_bytes(file.read_bytes()[:-1])
    assert f"{file.name} has" in error_of(index)
    file.write_bytes(b"\0" * (file.stat().st_size + 1))
    assert "damaged" in error_of(index)
    file.unlink()
    assert "is missing" in error_of(index)


@pytest.mark.parametrize("name", ["00000 (1).safetensors", "._00000.safetensors"])
def test_what_a_copy_leaves_beside_the_vectors_is_not_read(name: str, made: dict[str, Path], tmp_path: Path):
    """The vectors of a conflicting copy were those of the next segment's passages, and no check told."""
    path, queries = Path(shutil.copytree(made["colbert"], tmp_path / "index")), ["harpsichord strings", "chess"]
    add_to_index(path, [NEW], progress=False)
    before = open_folder(path).search_many(queries, 3)
    moved = shutil.copytree(path, tmp_path / "moved")
    vectors = moved / "segments" / "1" / "vectors"
    shutil.copy(vectors / "00000.safetensors", vectors / name)
    assert open_folder(moved).search_many(queries, 3) == before


@pytest.mark.parametrize("engine", ["colbert", "dense"])
def test_its_checkpoint_is_found_from_any_folder_and_when_both_are_moved(
    engine: EngineName, passages: list[Passage], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    home, find = tmp_path / "home", find_model if engine == "dense" else find_checkpoint
    shutil.copytree(find("minilm").path, home / "checkpoints" / "mine")
    monkeypatch.chdir(home)
    build_index(passages[:2], "indexes/i", engine, checkpoint="checkpoints/mine", progress=False)
    monkeypatch.chdir(tmp_path)
    assert open_folder(home / "indexes" / "i").manifest.checkpoint == str(home / "checkpoints" / "mine")
    home.rename(tmp_path / "moved")
    assert open_index("moved/indexes/i")("chess", 1)
    moved = tmp_path / "moved" / "indexes" / "i"
    found = find_again(find, moved, open_folder(moved).manifest)
    assert found is not None and found.name == str(tmp_path.resolve() / "moved" / "checkpoints" / "mine")
    other = shutil.copytree(tmp_path / "moved" / "checkpoints" / "mine", home / "checkpoints" / "mine")
    (other / "config.json").write_text((other / "config.json").read_text() + "\n")  # trained further where it was
    manifest = open_folder(moved).manifest
    assert find_again(find, moved, manifest) == found
    shutil.copyfile(Path(found.name) / "config.json", other / "config.json")
    (Path(found.name) / "config.json").write_text("{}")  # or where it is now
    again = find_again(find, moved, manifest)
    assert again is not None and again.name == str(other)


def test_an_index_of_another_checkpoint_is_refused_not_searched(passages: list[Passage], tmp_path: Path):
    checkpoint = tmp_path / "checkpoint"
    shutil.copytree(find_checkpoint("minilm").path, checkpoint)
    build_index(passages, tmp_path / "i", checkpoint=checkpoint, progress=False)
    checkpoint.rename(tmp_path / "elsewhere")
    assert "no checkpoint at" in error_of(tmp_path / "i")
    assert open_index(tmp_path / "i", checkpoint=tmp_path / "elsewhere")("chess", 1)[0].title == "Chess"
    shutil.copytree(tmp_path / "elsewhere", checkpoint)
    weights = load_file(checkpoint / "model.safetensors")
    weights["linear.weight"] = -weights["linear.weight"][::-1].copy()
    save_file(weights, checkpoint / "model.safetensors", metadata={"format": "pt"})
    message = error_of(tmp_path / "i")
    assert "was made with the checkpoint" in message and "is now another" in message


def test_an_index_whose_checkpoint_is_gone_is_not_made_anew_with_another(passages: list[Passage], tmp_path: Path):
    mine = tmp_path / "mine"
    shutil.copytree(find_model("minilm").path, mine)
    build_index(passages, tmp_path / "i", "dense", checkpoint=mine, progress=False)
    mine.rename(tmp_path / "elsewhere")
    before = (tmp_path / "i" / MANIFEST).read_bytes()
    with pytest.raises(InputError, match=r"no .* at .*mine.*; or name another with --checkpoint"):
        build_index(passages[:2], tmp_path / "i", progress=False)
    assert (tmp_path / "i" / MANIFEST).read_bytes() == before
    build_index(passages[:2], tmp_path / "i", checkpoint="minilm", progress=False)
    assert open_folder(tmp_path / "i").manifest.kind == "dense"


def test_a_damaged_index_is_made_anew_as_what_it_was(made: dict[str, Path], passages: list[Passage], tmp_path: Path):
    index = Path(shutil.copytree(made["hybrid"], tmp_path / "index"))
    manifest = open_folder(index).manifest
    file = index / "segments" / "1" / PASSAGES
    file.write_bytes(file.read_bytes()[:-1])
    assert "is damaged" in error_of(index)
    build_index(passages, index, progress=False)
    again = open_folder(index).manifest
    assert (again.kind, again.checkpoint, again.corpus_sha256) == (
        "hybrid",
        manifest.checkpoint,
        manifest.corpus_sha256,
    )


@pytest.mark.parametrize("k", [2.5, "3", None])
def test_a_count_that_is_no_whole_number_is_told(k: Any, index: Path):
    with pytest.raises(InputError, match=r"k is .*; give a whole number"):
        open_index(index)("Hamlet", k)


def test_half_a_surrogate_pair_is_searched_like_what_stands_for_it(index: Path):
    opened = open_index(index)
    assert opened("\ud800 Hamlet", 2) == opened("? Hamlet", 2) != []


def test_an_index_is_brought_up_to_date_with_its_checkpoint_in_another_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    docs, old, new = tmp_path / "docs", tmp_path / "old", tmp_path / "new"
    docs.mkdir()
    (docs / "games.txt").write_text("Chess is a board game for two players.")
    shutil.copytree(find_model("minilm").path, old)
    build_index(docs, tmp_path / "i", "dense", checkpoint=old, progress=False)
    old.rename(new)
    monkeypatch.setattr(DenseEncoder, "encode_passages", None)  # nothing is encoded anew
    build_index(docs, tmp_path / "i", "dense", checkpoint=new, progress=False)
    monkeypatch.undo()
    found = open_folder(tmp_path / "i")  # without being told again
    assert found.manifest.checkpoint == str(new) and found("board game", 1)[0].pid == "games.txt#1"
    assert add_to_index(tmp_path / "i", [Passage("go", "Go is one, too.")], progress=False).passages == 2


def test_an_index_that_nobody_holds_frees_its_memory_at_once(made: dict[str, Path]):
    """A server that takes up a new state would else have both in memory for as long as the collector lets it."""
    gc.disable()
    try:
        for path in made.values():
            index = open_folder(path)
            assert index("Who checkmates?", 1, where="title = 'Chess'") or path.name == "bm25"
            gone = weakref.ref(index)
            del index
            assert gone() is None
    finally:
        gc.enable()


def test_the_manifest_can_be_read_by_people_and_programs(made: dict[str, Path]):
    manifest = json.loads((made["colbert"] / MANIFEST).read_text())
    assert (manifest["kind"], manifest["search"], manifest["checkpoint"]) == ("colbert", "auto", default_checkpoint())
    assert len(manifest["checkpoint_sha256"]) == len(manifest["corpus_sha256"]) == 64
