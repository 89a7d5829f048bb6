"""If these failed, a DSPy user's own recursive module could not be trained, kept and loaded elsewhere."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import dspy
import numpy as np
import pytest

import raisf
from raisf.lm.adapter import CompactAdapter
from raisf.lm.connect import connect
from raisf.lm.finetune.training import Training
from raisf.lm.local.model import LocalLM
from raisf.optimize.optimizers.kinds_of_know import turn
from raisf.optimize.optimizers.row_writer import RowWriter
from raisf.optimize.runs import plain
from raisf.retrieval.engines.bm25 import BM25
from raisf.retrieval.passage import Passage
from raisf.utils.errors import InputError
from raisf.utils.files import read_json, write_json
from tests.optimize.halving import Halving, counts, numbers, right
from tests.scripted import ScriptedLM

QUIET: dict[str, Any] = {"progress": False}
QUICK = Training(epochs=1, rank=2, batch_size=8)


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("work")


@pytest.fixture(scope="module")
def trained(llama: Path, work: Path) -> Any:
    program = Halving(least=2)
    program.set_lm(ScriptedLM(counts))
    options: Any = {"base": LocalLM(f"local/{llama}", adapter="chat"), "predictors": ["judge"], "metric": right}
    optimizer = raisf.FinetuneJudges(**options, training=QUICK, work=work, **QUIET)
    return optimizer.compile(program, trainset=numbers(*range(2, 24)), valset=numbers(*range(24, 30)))


def test_a_recursive_module_of_ones_own_learns_from_its_right_runs(trained: Any) -> None:
    report = trained.compile_report["predictors"]["judge"]
    assert report["source"] == "own right runs" and set(report["rows"]["train"]) == {"small", "large"}
    assert trained.judge.lm.lora is not None and isinstance(trained.halve.lm, ScriptedLM)


class Sorted(dspy.Signature):
    """Sort the words
    by their length."""

    words: list[str] = dspy.InputField()
    earlier: dspy.History = dspy.InputField()
    limits: dict[str, int] = dspy.InputField()
    short: list[str] = dspy.OutputField()
    any_long: bool = dspy.OutputField()
    longest: int | None = dspy.OutputField()


@pytest.mark.parametrize("asks", [None, dspy.JSONAdapter(), dspy.XMLAdapter()], ids=["chat", "json", "xml"])
@pytest.mark.parametrize("form", ["compact", "pocket", "chat"])
def test_the_prompt_that_it_learns_is_the_one_that_it_is_asked_with(
    llama: Path, form: str, asks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A local LM reads DSPy's formats back and asks in its own: weights trained on theirs would never meet them."""
    if form == "chat" and isinstance(asks, dspy.JSONAdapter):
        pytest.skip("DSPy writes no training rows in JSON")
    said = {"short": ["a", "of"], "any_long": False, "longest": None}
    lm = LocalLM(f"local/{llama}", adapter=form, cache=False)
    turn = {"words": ["is"], "limits": {"long": 1}, "short": [], "any_long": True, "longest": 2}
    asked = {"words": ["of", "a"], "earlier": dspy.History(messages=[turn]), "limits": {"long": 5}}
    program = dspy.Predict(Sorted)
    program.demos = [dspy.Example(words=["tree"], limits={"long": 3}, short=[], any_long=True, longest=None)]
    met: list[list[int]] = []
    text = lm.base_engine.text

    def submit(request: Any, *_: Any) -> Any:
        met.append(text.encode(*text.of(request)))
        raise RuntimeError("enough")

    monkeypatch.setattr(lm.base_engine, "submit", submit)
    with dspy.context(lm=lm, adapter=asks):
        writer = RowWriter(program, "self", lm)
        messages: Any = writer.messages(dspy.Example(**plain(asked), **said))  # as runs are kept
        row = text.training_row(messages, isinstance(writer.adapter, CompactAdapter))
        with pytest.raises(Exception, match="enough"):
            program(**asked)
    assert row.tokens[: row.start] == met[0][: row.start] and row.start >= len(met[0]) - 1
    learnt = text.decode(row.tokens[len(met[0]) :], True)
    if form == "chat":
        assert (asks or dspy.ChatAdapter()).parse(Sorted, learnt) == said
    else:  # what it writes is read as what it has learnt
        call: Any = writer._call(asked)
        assert lm.adapter.parse(call.signature, learnt) == said | {"any_long": "False"}


def same_year(example: Any, prediction: Any, trace: Any = None) -> bool:
    return example.year == prediction.year


def test_none_is_shown_where_it_is_what_an_output_may_be(tmp_path: Path) -> None:
    """Only those examples were shown in which there was something to find."""
    program = dspy.Predict("text -> year: int | None")
    program.set_lm(ScriptedLM(lambda fields: {"year": fields["text"].partition(" ")[0]}))
    examples = [dspy.Example(text=f"{y} {n}", year=y).with_inputs("text") for n in range(4) for y in (None, 1900)]
    optimizer = raisf.BootstrapJudges(metric=same_year, demos=8, work=tmp_path, **QUIET)
    compiled: Any = optimizer.compile(program, trainset=examples)
    assert sorted(demo.text for demo in compiled.demos) == sorted(one.text for one in examples)
    assert all(same_year(one, demo) for demo in compiled.demos for one in examples if one.text == demo.text)


@pytest.fixture(scope="module")
def artifact(trained: Any, work: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of what was trained, whose work folder is gone."""
    trained.halve.demos = [dspy.Example(whole=8, half=4)]
    folder = tmp_path_factory.mktemp("artifact") / "a"
    raisf.save(trained, folder)
    shutil.rmtree(work)
    return folder


def test_it_is_saved_with_its_weights_and_loads_where_its_work_folder_is_gone(
    trained: Any, artifact: Path, tmp_path: Path
) -> None:
    moved = Path(shutil.copytree(artifact, tmp_path / "moved"))
    manifest = read_json(moved / "manifest.json")
    assert manifest["weights"]["judge"]["sha256"] and manifest["program"] == f"{Halving.__module__}:Halving"
    lm = ScriptedLM(counts)
    loaded: Any = raisf.load(moved, lm=lm, program=Halving)  # no allow_unsafe_lm_state, no pickle
    assert loaded.judge.lm.lora == moved / "adapters" / "judge" and loaded.halve.lm is lm
    assert loaded.least == 2, "a number that is not the default comes back"
    assert [dict(demo) for demo in loaded.halve.demos] == [{"whole": 8, "half": 4}]
    assert loaded.judge.lm.model.rpartition("#")[2] == trained.judge.lm.model.rpartition("#")[2], "the very weights"
    mine = Halving(least=2)
    assert raisf.load(moved, lm=lm, program=mine) is not mine and not mine.halve.demos, "the instance given stays"
    with pytest.raises(InputError, match=r"another least of Halving than .* has \(2, not 9\): give an instance"):
        raisf.load(moved, lm=lm, program=Halving(least=9))
    weights = moved / "adapters" / "judge" / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"\0\0\0\1")
    with pytest.raises(InputError, match="adapters/judge has changed since it was saved"):
        raisf.load(moved, lm=lm, program=Halving)


def test_an_artifact_never_chooses_code_to_import(artifact: Path, tmp_path: Path) -> None:
    shutil.copytree(artifact, tmp_path / "a")
    lm = ScriptedLM(counts)
    manifest = read_json(tmp_path / "a" / "manifest.json")
    (tmp_path / "trap.py").write_text("raise SystemExit('imported')\n")
    sys.path.insert(0, str(tmp_path))
    try:
        for name in ("trap:Program", "os:system", "dspy:Predict", "raisf.programs.ra_isf:RAISF.forward", "nowhere:X"):
            (tmp_path / "a" / "manifest.json").write_text(json.dumps({**manifest, "program": name}))
            with pytest.raises(InputError, match=r"never chooses code to import: import that class before, or give it"):
                raisf.load(tmp_path / "a", lm=lm)
            with pytest.raises(InputError, match=r"on the command line --program package\.module:Class@.*/a\)"):
                raisf.load(tmp_path / "a", lm=lm)
        assert "trap" not in sys.modules
    finally:
        sys.path.remove(str(tmp_path))
    with pytest.raises(InputError, match=r"give a dspy\.Module's class, or an instance"):
        raisf.load(tmp_path / "a", lm=lm, program="trap:Program")  # type: ignore[arg-type]


def test_an_artifact_sets_no_text_of_ones_own_class(tmp_path: Path) -> None:
    """It may be the address that a program asks, or a path."""

    class Asking(dspy.Module):
        def __init__(self, url: str = "http://mine") -> None:
            super().__init__()
            self.url, self.ask = url, dspy.Predict("question -> answer")

    raisf.save(Asking("http://theirs"), tmp_path / "a")
    assert "theirs" not in (tmp_path / "a" / "manifest.json").read_text(), "it may be a key"
    with pytest.raises(InputError, match=r"compiled with another url of Asking than .* has: give an instance"):
        raisf.load(tmp_path / "a", program=Asking)
    assert raisf.load(tmp_path / "a", program=Asking("http://theirs")).url == "http://theirs"


def test_a_module_without_our_judges_has_no_thresholds(world: Any) -> None:
    with pytest.raises(InputError, match="Halving has no thresholds to calibrate"):
        raisf.Calibrate(**QUIET).compile(Halving(), valset=world.dev)


class Passing(raisf.RAISF):
    """Passes options on."""

    def __init__(self, retriever: Any = None, **options: Any) -> None:
        super().__init__(retriever, **options)


class Fixed(raisf.RAISF):
    """Takes no options, and has an address of its own."""

    def __init__(self, retriever: Any = None, url: str = "http://mine") -> None:
        super().__init__(retriever, k=3)
        self.url = url


class Around(dspy.Module):
    """Contains a program of ours."""

    def __init__(self, retriever: Any = None) -> None:
        super().__init__()
        self.rag = raisf.RAISF(retriever)

    def forward(self, question: str) -> dspy.Prediction:
        return self.rag(question=question)


@pytest.mark.parametrize("kind", [Passing, Fixed, Around])
@pytest.mark.parametrize("suffix", ["", ".json"])
def test_the_options_of_a_program_of_ours_are_kept_in_whatever_class_it_is(
    kind: Any, suffix: str, tmp_path: Path
) -> None:
    """Thresholds that calibrating had fitted, and the kind of self-knowledge it had chosen, were lost in silence."""
    program = kind()
    ours = getattr(program, "rag", program)
    turn(ours, "confidence")
    ours.know_threshold, ours.k, ours.insist = 0.9, 7, True
    place = tmp_path / f"a{suffix}"
    if suffix:
        program.save(place)
        again = kind()
        again.load(place)
    else:
        program.set_lm(ScriptedLM(counts))
        raisf.save(program, place)
        again = raisf.load(place, program=kind, lm=ScriptedLM(counts))
    assert getattr(again, "rag", again).options() == ours.options()
    assert ours.options()["know"] == "confidence" and ours.options()["k"] == 7


def test_options_of_ones_own_are_set_by_an_artifact_as_those_of_any_module(tmp_path: Path) -> None:
    raisf.save(Fixed(url="http://theirs"), tmp_path / "a")
    with pytest.raises(InputError, match=r"compiled with another url of Fixed than .* has: give an instance"):
        raisf.load(tmp_path / "a", program=Fixed)
    damaged = read_json(tmp_path / "a" / "manifest.json")
    damaged["options"] |= {"url": "http://mine", "k": 0}
    write_json(tmp_path / "a" / "manifest.json", damaged)
    with pytest.raises(InputError, match="k is 0: give a whole number"):
        raisf.load(tmp_path / "a", program=Fixed)


class Two(dspy.Module):
    """Searches two indexes, and takes its retriever behind another argument."""

    def __init__(self, k: int = 3, retriever: Any = None, wiki: Any = None) -> None:
        super().__init__()
        self.k = k
        self.news, self.wiki = raisf.RAISF(retriever, k=2), raisf.RAISF(wiki, k=2)


def shelf(word: str, folder: Path) -> Any:
    BM25.build([Passage(f"{word}{n}", f"{word} number {n} of the thing", word) for n in range(3)], folder / word)
    return raisf.open_index(folder / word)


def test_each_part_gets_its_own_index_back(tmp_path: Path) -> None:
    """All of them searched the first, and a number was the index where that came second."""
    raisf.save(Two(4, shelf("news", tmp_path), shelf("wiki", tmp_path)), tmp_path / "a")
    loaded: Any = raisf.load(tmp_path / "a", program=Two)
    assert [part.retriever("thing", 1)[0].title for part in (loaded.news, loaded.wiki)] == ["news", "wiki"]
    assert loaded.k == 4
    mine: Any = raisf.load(tmp_path / "a", program=Two, retriever=loaded.wiki.retriever)
    assert mine.news.retriever is mine.wiki.retriever is loaded.wiki.retriever, "the caller's is for all"
    damaged = read_json(tmp_path / "a" / "manifest.json")
    damaged["indexes"] = {"self.gone": damaged["index"]}
    write_json(tmp_path / "a" / "manifest.json", damaged)
    with pytest.raises(InputError, match=r"damaged .*has no part 'self.gone'"):
        raisf.load(tmp_path / "a", program=Two)


@pytest.mark.parametrize("frozen", [False, True], ids=["into a new one", "into one that is frozen, too"])
def test_what_a_part_that_dspy_froze_has_learnt_is_kept(frozen: bool, tmp_path: Path) -> None:
    """Nothing of it was written: the module came back as if its part had never been compiled."""
    module = Around(shelf("news", tmp_path))
    module.rag.know.demos = [dspy.Example(question="q", verdict="know")]
    module.rag.k, module.rag._compiled = 7, True
    module.rag.set_lm(connect("openai/small"))
    raisf.save(module, tmp_path / "a")
    other = Around()
    other.rag._compiled = frozen
    loaded: Any = raisf.load(tmp_path / "a", program=other)
    assert loaded.rag.know.demos and loaded.rag.k == 7 and loaded.rag.retriever.path.resolve() == tmp_path / "news"
    assert loaded.rag.know.lm.model == "openai/small"
    given = ScriptedLM(counts)
    again: Any = raisf.load(tmp_path / "a", program=other, lm=given)
    assert {predictor.lm for predictor in again.rag.predictors()} == {given}


class Named(raisf.Direct):
    """A program of a user's own name, with an option of her own."""

    system = "mine"

    def __init__(self, retriever: Any = None, max_calls: int | None = None, least: float = 0.5) -> None:
        super().__init__(max_calls=max_calls)
        self.retriever, self.least = retriever, least


def answering() -> dspy.Module:
    module = dspy.Predict("question -> answer")
    module.demos = [dspy.Example(question="q", answer="a")]
    return module


@pytest.mark.parametrize("make", [lambda: Named(max_calls=4, least=0.9), answering])
def test_a_system_of_ones_own_and_a_bare_predictor_come_back(make: Any, tmp_path: Path) -> None:
    raisf.save(make(), tmp_path / "a")
    bare = Named() if isinstance(make(), Named) else dspy.Predict("question -> answer")
    loaded: Any = raisf.load(tmp_path / "a", program=bare)
    assert loaded.demos if isinstance(bare, dspy.Predict) else (loaded.max_calls, loaded.least) == (4, 0.9)


def test_the_lms_of_an_instance_stay_where_the_artifact_kept_none(tmp_path: Path) -> None:
    module = Around()
    module.set_lm(lm := ScriptedLM(counts))
    raisf.save(module, tmp_path / "a")
    loaded: Any = raisf.load(tmp_path / "a", program=module)
    assert {predictor.lm for predictor in loaded.predictors()} == {lm}


def test_numbers_out_of_an_array_are_kept_in_a_module_of_ones_own(tmp_path: Path) -> None:
    raisf.save(Halving(np.int64(7)), tmp_path / "a")  # type: ignore[arg-type]
    assert raisf.load(tmp_path / "a", program=Halving).least == 7


def test_a_name_that_weights_cannot_be_kept_under_is_told_before_they_are_trained(llama: Path) -> None:
    program = Halving()
    program.judge = {"a/b": program.judge}  # type: ignore[assignment]
    program.set_lm(lm := ScriptedLM(counts))
    optimizer = raisf.FinetuneJudges(base=LocalLM(f"local/{llama}"), predictors="all", metric=right, **QUIET)
    with pytest.raises(InputError, match="cannot name a folder"):
        optimizer.compile(program, trainset=numbers(2, 9), valset=numbers(3, 10))
    assert lm.calls == []
