"""If these failed, a compiled program could not be kept, moved or trusted."""

import json
import logging
import os
import random
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import dspy
import pytest

import raisf
from raisf.evaluation.identity import describe
from raisf.lm import pocket
from raisf.lm.connect import connect
from raisf.optimize import artifact
from raisf.optimize.artifact import load, save
from raisf.optimize.compile import compile
from raisf.optimize.demonstrations import Rows, collect_rows, draw
from raisf.optimize.manifest import MANIFEST, STATE
from raisf.programs.baselines.direct import Direct
from raisf.programs.ra_isf import RAISF
from raisf.programs.registry import PROGRAMS, build
from raisf.retrieval.engines.bm25 import BM25
from raisf.utils.errors import InputError, RaisfError
from tests.scripted import ScriptedLM


@pytest.fixture(scope="module")
def rows(world, oracle) -> Rows:
    """What a program with the scripted LM gives to show."""
    program = RAISF(BM25.load(world.index), k=4, max_depth=2)
    program.set_lm(oracle())
    return collect_rows(program, world.train, labels="model", threads=4, strict=True)


@pytest.fixture
def compiled(program: RAISF, rows: Rows) -> Any:
    """A program with demonstrations of every judge, a report, and options that are not the defaults."""
    program.k, program.max_depth = 4, 2
    made: Any = draw(program, rows, 4, random.Random(0))
    made.compile_report = {"chosen": "labeled", "seconds": 1.5}
    return made


def fresh(code: str, *arguments: Any, cwd: Path) -> str:
    """What a new Python process, standing elsewhere, prints."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_program_saves_itself_as_an_artifact_or_as_dspy_does(compiled: Any, tmp_path: Path) -> None:
    """Compile, save, load in another process: the three lines that a DSPy user will write."""
    compiled.save(tmp_path / "tuned")
    assert (tmp_path / "tuned" / MANIFEST).is_file()
    loaded = load(tmp_path / "tuned", lm=compiled.know.lm, retriever=compiled.retriever)
    assert describe(loaded) == describe(compiled)
    compiled.save(tmp_path / "v1.0")  # a dot is no suffix
    assert (tmp_path / "v1.0" / MANIFEST).is_file()
    compiled.set_lm(None)  # DSPy keeps the LMs too, which a scripted one does not let it do
    compiled.save(tmp_path / "state.json")
    assert set(json.loads((tmp_path / "state.json").read_text())) > {"know", "relevant", "decompose"}


def test_a_fresh_process_loads_the_very_same_program(compiled: Any, tmp_path: Path) -> None:
    compiled.set_lm(connect("openai/some-model", api_base="http://127.0.0.1:9/v1", adapter="compact"))
    save(compiled, tmp_path / "a")
    code = """
        import json, sys
        from raisf.evaluation.identity import describe
        from raisf.optimize.artifact import load
        program = load(sys.argv[1], api_base="http://127.0.0.1:9/v1")
        lm = program.know.lm
        print(json.dumps([describe(program), program.compile_report, lm.api_base,
        type(lm.adapter).__name__]))
    """
    (tmp_path / "elsewhere").mkdir()
    found = json.loads(fresh(code, tmp_path / "a", cwd=tmp_path / "elsewhere"))
    assert found == [describe(compiled), compiled.compile_report, "http://127.0.0.1:9/v1", "CompactAdapter"]


def test_it_answers_the_same_questions_the_same_way(compiled: Any, world, oracle, tmp_path: Path) -> None:
    save(compiled, tmp_path / "a")
    loaded = load(tmp_path / "a", lm=oracle())
    for example in world.test[:5]:
        ours, theirs = (program(question=example.question).trace.root for program in (compiled, loaded))
        assert (ours.answer, ours.route) == (theirs.answer, theirs.route)


def test_predictors_with_different_lms_get_them_back(compiled: Any, tmp_path: Path) -> None:
    compiled.set_lm(connect("openai/large"))
    chosen: Any = {"num_retries": 7, "timeout": 9.0, "probabilities": False}
    compiled.know.lm = connect("openai/small", temperature=0.5, **chosen)
    save(compiled, tmp_path / "a")
    loaded: Any = load(tmp_path / "a")
    assert loaded.know.lm.endpoint.chosen() == chosen and not loaded.compose.lm.endpoint.chosen()
    assert (loaded.know.lm.model, loaded.know.lm.kwargs["temperature"]) == ("openai/small", 0.5)
    assert loaded.compose.lm.model == "openai/large" and loaded.compose.lm is loaded.decompose.lm


def test_no_key_is_ever_written(compiled: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-environment")
    compiled.set_lm(
        dspy.LM("openai/x", api_key="sk-given", api_base="http://me:sk-url@127.0.0.1/v1?key=sk-query#sk-end")
    )
    save(compiled, tmp_path / "a")
    written = "".join(file.read_text() for file in (tmp_path / "a").iterdir())
    assert "sk-" not in written and "127.0.0.1" in written


def test_an_lm_that_cannot_be_opened_again_is_left_out_told_and_asked_for(
    compiled: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    compiled.know.lm = connect("openai/small")
    with caplog.at_level(logging.WARNING):
        save(compiled, tmp_path / "a")
    assert "does not keep the LM scripted/lm of relevant, decompose" in caplog.text and "lm=" in caplog.text
    with dspy.context(lm=None), pytest.raises(InputError, match="needs a language model"):
        load(tmp_path / "a")(question="Who?")


def test_an_lm_with_options_that_connect_does_not_know_is_told(
    compiled: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It came back without them, in silence, and answered otherwise."""
    options: dict[str, Any] = {"temperature": 1.0, "max_tokens": 16000}
    compiled.set_lm(dspy.LM("openai/gpt-5-mini", **options))
    compiled.know.lm = dspy.LM("openai/gpt-5-mini", **options, extra_body={"seed": 1})
    with caplog.at_level(logging.WARNING):
        save(compiled, tmp_path / "a")
    assert "does not keep the LM openai/gpt-5-mini of know, " in caplog.text
    loaded: Any = load(tmp_path / "a")
    assert loaded.know.lm is None and loaded.compose.lm.kwargs == compiled.compose.lm.kwargs


def test_the_index_is_found_again_wherever_one_or_both_are_moved(world, oracle, tmp_path: Path) -> None:
    home, moved = tmp_path / "home", tmp_path / "moved"
    shutil.copytree(world.index, home / "indexes" / "i")
    save(RAISF(BM25.load(home / "indexes" / "i")), home / "artifacts" / "a")
    shutil.copytree(home / "artifacts" / "a", tmp_path / "alone")
    assert load(tmp_path / "alone").retriever.path == home / "indexes" / "i"
    home.rename(moved)
    assert load(moved / "artifacts" / "a").retriever.path.resolve() == moved / "indexes" / "i"
    with pytest.raises(InputError, match=r"cannot open its index: no index at .*--index DIR"):
        load(tmp_path / "alone")


def test_a_model_in_a_folder_is_found_again_from_anywhere_and_when_it_is_moved(
    makers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    makers.make_llama(home / "models" / "mine")
    monkeypatch.chdir(home)
    program = Direct()
    program.set_lm(connect("local/models/mine"))
    save(program, "artifacts/a")
    shutil.copytree(home / "artifacts" / "a", tmp_path / "alone")
    monkeypatch.chdir(tmp_path)
    for place in (home / "artifacts" / "a", tmp_path / "alone"):
        assert load(place).answer_directly.lm.base.startswith(f"local/{home / 'models' / 'mine'}#")
    moved = home.rename(tmp_path / "moved")
    assert load(moved / "artifacts" / "a").answer_directly.lm.base.startswith(f"local/{moved / 'models' / 'mine'}#")


def test_a_folder_with_other_things_is_never_replaced(compiled: Any, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years")
    with pytest.raises(InputError, match=r"other things \(thesis.txt\)"):
        save(compiled, tmp_path)


def test_an_index_of_another_corpus_is_refused_unless_it_is_your_choice(compiled: Any, world, tmp_path: Path) -> None:
    from raisf.retrieval.passage import Passage

    index = tmp_path / "index"
    shutil.copytree(world.index, index)
    compiled.retriever = BM25.load(index)
    save(compiled, tmp_path / "a")
    shutil.rmtree(index)
    BM25.build([Passage("1", "Something else"), Passage("2", "entirely")], index)
    with pytest.raises(InputError, match="of another corpus"):
        load(tmp_path / "a")
    assert load(tmp_path / "a", retriever=BM25.load(index)).k == 4


def test_an_index_that_changed_after_it_was_opened_is_another_corpus(compiled: Any, world, tmp_path: Path) -> None:
    """What was compiled on the old passages was loaded with the new ones, without a word."""
    shutil.copytree(world.index, tmp_path / "index")
    compiled.retriever = BM25.load(tmp_path / "index")
    raisf.add_to_index(tmp_path / "index", [raisf.Passage("new", "Something else")], progress=False)
    save(compiled, tmp_path / "a")
    with pytest.raises(InputError, match="of another corpus"):
        load(tmp_path / "a")


def test_a_retriever_in_memory_has_to_be_given_again(compiled: Any, tmp_path: Path) -> None:
    compiled.retriever.path = None
    save(compiled, tmp_path / "a")
    with pytest.raises(InputError, match="or in memory"):
        load(tmp_path / "a")
    assert load(tmp_path / "a", retriever=compiled.retriever).k == 4


def test_a_program_without_a_retriever_needs_no_index(tmp_path: Path) -> None:
    save(Direct(max_calls=1), tmp_path / "a")
    assert load(tmp_path / "a").max_calls == 1


def test_a_save_that_fails_leaves_the_old_artifact_whole(
    compiled: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(compiled, tmp_path / "a")
    before = {file.name: file.read_bytes() for file in (tmp_path / "a").iterdir()}
    compiled.know.demos = []

    def full(path: Path, value: Any) -> None:
        if path.name == MANIFEST:
            raise OSError(28, "No space left on device")
        path.write_text("half")

    monkeypatch.setattr(artifact, "write_json", full)
    with pytest.raises(RaisfError, match="No space"):
        save(compiled, tmp_path / "a")
    assert {file.name: file.read_bytes() for file in (tmp_path / "a").iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_saving_again_replaces(compiled: Any, tmp_path: Path) -> None:
    save(compiled, tmp_path / "a")
    compiled.know.demos = []
    save(compiled, tmp_path / "a")
    assert load(tmp_path / "a").know.demos == []


def edit(file: Path, **fields: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))


def kept_lm(predictor: str = "know", **options: Any) -> dict[str, Any]:
    return {"connect": {"spec": "openai/x", **options}, "predictors": [predictor]}


BROKEN = {
    "nothing there": (shutil.rmtree, "no artifact at"),
    "a foreign folder": (lambda a: (a / MANIFEST).unlink(), "no artifact, it has no manifest.json"),
    "a foreign manifest": (lambda a: (a / MANIFEST).write_text('{"kind": "bm25"}'), "says other things"),
    "a torn manifest": (lambda a: (a / MANIFEST).write_text('{"format'), "not JSON"),
    "another format": (lambda a: edit(a / MANIFEST, format=99), "has format 99, this version reads 1, 2, 3"),
    "no state": (lambda a: (a / STATE).unlink(), "program.json is missing"),
    "a changed state": (lambda a: edit(a / STATE, know={}), "has changed since it was saved"),
    "options of another kind": (lambda a: edit(a / MANIFEST, options=None), r"damaged \(options in manifest.json"),
    "an option of another kind": (lambda a: edit(a / MANIFEST, options={"max_calls": [1]}), r"damaged \(options in"),
    "LMs of another kind": (lambda a: edit(a / MANIFEST, lms=None), r"damaged \(lms in"),
    "an LM of another kind": (lambda a: edit(a / MANIFEST, lms=[kept_lm(temperature="hot")]), "temperature in manif"),
    "an LM that writes nothing": (lambda a: edit(a / MANIFEST, lms=[kept_lm(max_tokens=-1)]), "max_tokens in manif"),
    "an LM with more": (lambda a: edit(a / MANIFEST, lms=[kept_lm(trust_remote_code=True)]), "trust_remote_code in"),
    "an LM of nobody": (lambda a: edit(a / MANIFEST, lms=[kept_lm("nope")]), "ra-isf has no predictor 'nope'"),
    "no weights": (lambda a: edit(a / MANIFEST, weights=None), r"damaged \(weights in"),
    "an empty index": (lambda a: edit(a / MANIFEST, index={}), r"damaged \(index.corpus_sha256 in"),
    "an unknown program": (lambda a: edit(a / MANIFEST, program="ra-isg"), "^unknown program 'ra-isg'"),
}


@pytest.mark.parametrize(("spoil", "message"), BROKEN.values(), ids=BROKEN.keys())
def test_what_is_wrong_is_said(compiled: Any, tmp_path: Path, spoil: Any, message: str) -> None:
    save(compiled, tmp_path / "a")
    spoil(tmp_path / "a")
    with pytest.raises(InputError, match=message):
        load(tmp_path / "a")


def test_a_state_of_another_version_of_the_program_is_said(compiled: Any, tmp_path: Path) -> None:
    from raisf.utils.files import sha256_file

    save(compiled, tmp_path / "a")
    state = json.loads((tmp_path / "a" / STATE).read_text())
    del state["compose"]
    (tmp_path / "a" / STATE).write_text(json.dumps(state))
    edit(tmp_path / "a" / MANIFEST, state_sha256=sha256_file(tmp_path / "a" / STATE))
    with pytest.raises(InputError, match="another version of ra-isf"):
        load(tmp_path / "a")


@pytest.mark.parametrize("system", PROGRAMS)
def test_every_program_is_kept_as_it_is_made(system: str, tmp_path: Path) -> None:
    save(build(system), tmp_path / "kept")
    assert load(tmp_path / "kept").dump_state() == build(system).dump_state()


def test_a_predictor_that_the_options_do_not_make_is_refused_and_not_loaded_as_another(tmp_path: Path) -> None:
    """A reader that had learnt to answer at once was kept so, loaded, asked for a sentence first, and read nothing."""
    program = RAISF()
    program.answer_from = RAISF(evidence=False).answer_from
    with pytest.raises(InputError, match=r"answer_from is .* -> answer, .* -> evidence, answer, .*build"):
        save(program, tmp_path / "kept")
    program.evidence = False  # which goes with that reader
    save(program, tmp_path / "kept")
    assert list(load(tmp_path / "kept").answer_from.signature.output_fields) == ["answer"]  # type: ignore[attr-defined]

    more = Direct()
    more.second = dspy.Predict("question -> answer")
    with pytest.raises(InputError, match=r"direct has the predictors .*, second.* what second learnt would be lost"):
        save(more, tmp_path / "more")
    assert not (tmp_path / "more").exists()


def test_what_is_no_module_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a program is a dspy.Module, found a str"):
        save("direct", tmp_path / "a")  # type: ignore[arg-type]
    assert not (tmp_path / "a").exists()


def test_an_explicit_lm_replaces_the_stored_one(compiled: Any, tmp_path: Path) -> None:
    compiled.set_lm(connect("openai/large"))
    save(compiled, tmp_path / "a")
    lm = ScriptedLM(lambda fields: {})
    assert load(tmp_path / "a", lm=lm).compose.lm is lm
    assert load(tmp_path / "a", lm="openai/other").compose.lm.model == "openai/other"


@pytest.mark.slow
@pytest.mark.skipif(not (pocket.path() / "model.safetensors").is_file(), reason="the pocket Llama is not trained yet")
def test_compiled_with_the_pocket_llama_saved_and_asked_in_a_fresh_process(world, tmp_path: Path) -> None:
    program = RAISF(BM25.load(world.index), max_depth=2)
    program.set_lm(connect("pocket"))
    compiled: Any = compile(program, trainset=world.train, valset=world.dev, labels="gold", progress=False)
    save(compiled, tmp_path / "a")
    code = """
        import sys
        from raisf.optimize.artifact import load
        print(load(sys.argv[1])(question=sys.argv[2]).answer)
    """
    question = world.test[0].question
    said = fresh(code, tmp_path / "a", question, cwd=tmp_path)
    assert said.strip() == compiled(question=question).answer


def test_a_program_is_not_saved_under_a_name_that_loads_another(compiled: Any) -> None:
    with pytest.raises(InputError, match=r"smollm2 is the name of a compiled program that ships.*: take another"):
        save(compiled, "smollm2")
    assert not Path("smollm2").exists()
