"""If these failed, a newcomer would get the pocket Llama's inventions about her own documents."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import raisf
import raisf.optimize.artifact
from raisf import cli, data
from raisf.commands.options import ProgramChoice
from raisf.evaluation.metrics import exact_match
from raisf.experiments.opening import LMChoice, default_program, open_fitting, open_program
from raisf.lm.local import gguf
from raisf.optimize import shipped
from raisf.retrieval.closed_world import of_closed_world
from raisf.utils.errors import InputError
from raisf.utils.files import read_jsonl

ALMANAC = Path(data.__file__ or "").parent / "almanac"


@pytest.fixture(scope="module")
def home(make_home: Callable[..., Path]) -> Path:
    return make_home(6, 6, 6)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("real")
    rows = [
        {"id": "1-0-0", "title": "Danube", "text": "The Danube rises in the Black Forest."},
        {"id": "1-0-1", "title": "Chess", "text": "Chess is played on a board of 64 squares."},
    ]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    index = ["index", str(folder / "corpus.jsonl"), "--engine", "bm25", "--out", str(folder / "index")]
    assert cli.main(index) == 0
    return folder


@pytest.fixture
def no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(gguf.SHIPPED, "smollm2", gguf.Shipped("no-such-package", "a.gguf", "Apache-2.0", 93))


@pytest.fixture
def some_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if SmolLM2 could be found, and the program compiled for it."""
    monkeypatch.setattr("raisf.lm.connect.shipped_file", lambda name: Path(name))
    monkeypatch.setattr(shipped, "shipped_folder", lambda name: Path(name))


def test_a_closed_world_is_known_by_its_passages_however_it_was_indexed(home: Path, real: Path, tmp_path: Path) -> None:
    assert of_closed_world(home / "index") and of_closed_world(str(home / "index"))
    assert not of_closed_world(real / "index")
    opened = raisf.open_index(home / "index")
    assert of_closed_world(opened)
    assert of_closed_world(opened.where("source = 'corpus.jsonl'"))  # type: ignore[union-attr]
    other = tmp_path / "other"
    assert cli.main(["world", "--seed", "99", "--entities", "300", "--out", str(other)]) == 0
    raisf.build_index(other / "corpus.jsonl", tmp_path / "index", engine="bm25", progress=False)
    assert of_closed_world(tmp_path / "index")
    (tmp_path / "mine.txt").write_text("The Danube rises in the Black Forest.")
    raisf.add_to_index(tmp_path / "index", tmp_path / "mine.txt")
    assert not of_closed_world(tmp_path / "index")


def test_the_pocket_llama_answers_in_a_closed_world_and_nowhere_else(home: Path, real: Path, some_weights) -> None:
    assert LMChoice().decided(home / "index").spec == "pocket"
    assert LMChoice().decided(real / "index").spec == "smollm2"
    assert LMChoice().decided().spec == "smollm2"
    assert LMChoice("pocket").decided(real / "index").spec == "pocket"
    assert LMChoice().decided(None, raisf.load_questions(home / "world" / "test.jsonl")).spec == "pocket"
    assert open_fitting("direct", index=home / "index").answer_directly.lm.model.startswith("local/pocket#")


def test_the_default_program_follows_the_lm(home: Path, real: Path, some_weights) -> None:
    assert default_program(LMChoice(), home / "index") == "ra-isf"
    assert default_program(LMChoice(), real / "index") == "smollm2"
    assert default_program(LMChoice("smollm2"), home / "index") == "smollm2"
    assert default_program(LMChoice("smollm2", adapter="chat"), real / "index") == "ra-isf"
    assert default_program(LMChoice("openai/gpt-4o-mini"), real / "index") == "ra-isf"


def test_who_asks_an_uncompiled_program_of_the_default_lm_is_told(
    home: Path, real: Path, some_weights, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ProgramChoice, "open", lambda choice, lm: None)  # reads no weights

    def told(program: str, folder: Path, spec: str | None = None) -> bool:
        caplog.clear()
        nothing = dict.fromkeys((field.name for field in dataclasses.fields(ProgramChoice)), None)
        choice = ProgramChoice(**{**nothing, "program": program, "index": str(folder / "index"), "switches": ()})
        choice.open_to_ask(LMChoice(spec))
        return "ra-isf is not compiled for smollm2: --program smollm2 is" in caplog.text

    assert told("ra-isf", real)
    assert not told("rag", real) and not told("ra-isf", home) and not told("ra-isf", real, "pocket")
    monkeypatch.setenv("RAISF_LM", "openai/gpt-4o-mini")
    assert not told("ra-isf", real)


def test_the_environment_names_another_default(home: Path, real: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAISF_LM", "openai/gpt-4o-mini")
    assert {LMChoice().decided(one / "index").spec for one in (home, real)} == {"openai/gpt-4o-mini"}
    assert default_program(LMChoice(), real / "index") == "ra-isf"
    assert raisf.connect().model == "openai/gpt-4o-mini"
    monkeypatch.setenv("RAISF_LM", "pocket")
    assert raisf.connect().model.startswith("local/pocket#")


@pytest.mark.parametrize(
    "command", [["ask", "Where?"], ["ask", "Where?", "--program", "rag"], ["eval", "--test", "TEST"]], ids=str
)
def test_without_weights_one_line_names_the_choices(
    command: list[str], real: Path, no_weights: None, capsys: pytest.CaptureFixture[str]
) -> None:
    (real / "test.jsonl").write_text('{"question": "Where does the Danube rise?", "answer": "Black Forest"}\n')
    argv = [str(real / "test.jsonl") if one == "TEST" else one for one in command]
    assert cli.main([*argv, "--index", str(real / "index")]) == 2
    told = capsys.readouterr()
    assert not told.out and told.err.count("\n") == 1
    for choice in ("pip install --no-deps", "--lm", "RAISF_LM", "openai/", "local/", "pocket"):
        assert choice in told.err
    with pytest.raises(InputError, match="no language model is named"):
        raisf.connect()


def test_pocket_is_obeyed_where_it_is_asked_for(real: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["ask", "Where does the Danube rise?", "--lm", "pocket", "--max-calls", "3"]
    assert cli.main([*asked, "--index", str(real / "index"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["trace"]["system"] == "ra-isf"


def test_a_shipped_program_is_listed_with_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["programs", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["compiled"][0]
    assert listed["name"] == "smollm2" and listed["options"]["insist"] is True


def test_a_shipped_program_needs_an_index_and_is_named(capsys: pytest.CaptureFixture[str], some_weights) -> None:
    assert cli.main(["ask", "Where?", "--program", "smollm2"]) == 2
    assert "smollm2 retrieves passages: give --index DIR" in capsys.readouterr().err
    with pytest.raises(InputError, match=r"choose one of ra-isf, .*smollm2, or give a folder"):
        open_program("no-such-program")


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch, some_weights: None) -> list[Any]:
    """What artifacts are loaded with; as if each had weights on the pocket-tiny for every predictor."""
    asked: list[Any] = []

    def load(folder: str, lm: Any = None, **others: Any) -> Any:
        asked.append(lm)
        program = raisf.RAISF()
        program.set_lm(raisf.connect("pocket-tiny"))
        return program

    monkeypatch.setattr("raisf.optimize.artifact.load", load)
    monkeypatch.setitem(shipped.PROGRAMS, "pocket", ("as smollm2, for the pocket", ""))
    return asked


def test_the_options_of_the_default_lm_need_no_name(real: Path, loaded: list[Any]) -> None:
    """`raisf ask Q --index DOCS --max-tokens 64` was told to name an LM that it had not named."""
    open_program("pocket", index=real / "index", lm=LMChoice(max_tokens=64))
    assert loaded[0].model.startswith("local/pocket#") and loaded[0].kwargs["max_tokens"] == 64
    open_program("pocket", index=real / "index")
    assert loaded[1] is None
    with pytest.raises(InputError, match="pocket runs in this process and has no endpoint"):
        open_program("pocket", index=real / "index", lm=LMChoice(api_base="http://127.0.0.1:9/v1", max_tokens=64))


def test_an_lm_of_no_weights_answers_an_artifacts_prompts(
    real: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    program = raisf.RAISF()
    program.set_lm(raisf.connect("pocket-tiny"))
    raisf.save(program, tmp_path / "artifact")
    open_program(str(tmp_path / "artifact"), index=real / "index", lm=LMChoice("pocket"))
    assert not caplog.records


def test_an_artifact_on_the_pocket_llama_warns_before_it_invents_things_about_real_documents(
    home: Path, real: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    program = raisf.RAISF()
    program.set_lm(raisf.connect("pocket"))
    raisf.save(program, tmp_path / "artifact")
    open_program(str(tmp_path / "artifact"), index=home / "index")
    assert not caplog.records
    open_program(str(tmp_path / "artifact"), index=real / "index", where="id != '9'")
    assert [one.message.partition(":")[0] for one in caplog.records] == [
        f"{tmp_path / 'artifact'} asks pocket, which knows a made-up world only, and this index is of another"
    ]
    caplog.clear()
    program.set_lm(raisf.connect("openai/gpt-4o-mini"))
    raisf.save(program, tmp_path / "other")
    open_program(str(tmp_path / "other"), index=real / "index")
    assert not caplog.records


def test_a_part_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shipped, "__file__", str(tmp_path / "__init__.py"))
    with pytest.raises(InputError, match="smollm2 is not in this installation: install raisf again, or give --program"):
        shipped.shipped_folder("smollm2")


def _shipped() -> Any:
    try:
        gguf.shipped_file("smollm2")
        return shipped.shipped_folder("smollm2")
    except InputError as error:
        return pytest.skip(str(error))


@pytest.mark.slow
def test_the_program_that_ships_answers_from_real_documents(real: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("gguf")
    _shipped()
    assert cli.main(["ask", "Where does the Danube rise?", "--index", str(real / "index"), "--json"]) == 0
    trace = json.loads(capsys.readouterr().out)["trace"]
    assert trace["root"]["know"]["probability"] is not None
    program = raisf.load("smollm2", retriever=real / "index")
    assert program.know.lm.lora is not None and program.know.lm.base.startswith("local/smollm2#")  # type: ignore


STYLES = {
    "numbers": lambda number, title, text: (f"{number:02d}.txt", text),
    "a first line": lambda number, title, text: (f"doc{number}.txt", f"{title}\n\n{text}"),
    "headings": lambda number, title, text: (f"{number}.md", f"# {title}\n\n## Overview\n\n{text}"),
}


@pytest.mark.slow
@pytest.mark.parametrize("style", STYLES)
def test_documents_are_answered_from_whatever_they_are_called(style: str, tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    _shipped()
    rows = {row["id"]: row for row in read_jsonl(ALMANAC / "corpus.jsonl")}
    lookups = [row for row in read_jsonl(ALMANAC / "dev.jsonl") if row["kind"] == "lookup"][:8]
    (tmp_path / "docs").mkdir()
    for number, pid in enumerate(dict.fromkeys(row["gold_pids"][0] for row in lookups)):
        name, text = STYLES[style](number, rows[pid]["title"], rows[pid]["text"])
        (tmp_path / "docs" / name).write_text(text, "utf-8")
    program = raisf.load("smollm2", retriever=raisf.build_index(tmp_path / "docs", tmp_path / "index", progress=False))
    said = [program(question=row["question"]).answer for row in lookups]
    right = [exact_match(answer, row["answers"]) for answer, row in zip(said, lookups, strict=True)]
    assert sum(right) >= 5, said
