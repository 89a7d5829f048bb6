"""Experiments on data sets and models as they come: without passages or splits, at an endpoint, of yes/no questions."""

import json
import threading

import pytest

import raisf
from raisf import cli
from raisf.experiments import tables
from raisf.experiments.catalog import EXPERIMENTS, Experiment
from raisf.experiments.opening import LMChoice
from raisf.experiments.settings import Setting
from raisf.experiments.workspace import Workspace
from raisf.optimize.judges.judge_data import steps
from raisf.utils.errors import InputError, RaisfError
from raisf.utils.progress import progress_bar

BORN = [{"question": "Where was Ada born?", "answer": "Ulm"}, {"question": "Where was Bo born?", "answer": ["Bonn"]}]


def _run(workspace, settings):
    with progress_bar(False) as bars:
        return Experiment("t", "s", settings, tables.table()).run(workspace, bars)


def test_a_row_that_an_endpoint_cannot_run_is_left_out_and_costs_no_table(data, endpoint, tmp_path):
    """REPLUG mixes token probabilities; table 1 was aborted at its row."""
    workspace = Workspace(tmp_path / "out", data("nq", test=BORN), lm=endpoint, engine="bm25")
    rows = {"direct": Setting("direct"), "replug": Setting("replug"), "rag": Setting("rag"), "w": Setting("weights")}
    (section,) = _run(workspace, rows)
    assert [row[0] for row in section.rows] == ["direct", "rag"]
    assert set(workspace.left_out) == {"replug", "w"}
    assert "Left out: replug (" in section.text and "token" in workspace.left_out["replug"]
    with pytest.raises(RaisfError, match="replug"):
        _run(workspace, {"replug": rows["replug"]})


def test_no_corpus_is_encoded_for_a_tuned_index_that_cannot_be_made(data, endpoint, tmp_path):
    """At an endpoint, or without questions to learn from, it was made first, for minutes, and the row left out."""
    others = {name: [{"question": f"Who is {name}?", "answer": "Cy"}] for name in ("train", "dev")}
    rows = {"direct": Setting("direct"), "tuned": Setting("replug", tuned=True)}
    for number, splits in enumerate((others, {})):
        folder = data(f"nq{number}", **splits, test=BORN)
        workspace = Workspace(tmp_path / f"out{number}", folder, lm=endpoint, engine="bm25")
        _run(workspace, rows)
        assert "likelihood" in workspace.left_out["tuned"] if splits else "to learn from" in workspace.left_out["tuned"]
        assert not (tmp_path / f"out{number}/made/index-dense").exists()


@pytest.mark.parametrize("split", ["train", "dev"])
def test_what_would_learn_from_test_questions_is_refused(split, data, endpoint, tmp_path):
    """Train, dev and test could be the same questions, and the tables were as always."""
    others = {
        "train": [{"question": "Who is Cy?", "answer": "Cy"}],
        "dev": [{"question": "Who is Di?", "answer": "Di"}],
    }
    folder = data("nq", **{**others, split: BORN[1:]}, test=BORN)
    workspace = Workspace(tmp_path / "out", folder, lm=endpoint, engine="bm25", n=1)  # what they share is not drawn
    told = rf"1 of the 1 questions of .*{split}.jsonl, such as 'Where was Bo born\?', are in .*take them out"
    for learner in (Setting("weights"), Setting("rag", few_shot=True), Setting("replug", tuned=True)):
        with pytest.raises(InputError, match=told):
            _run(workspace, {"direct": Setting("direct"), "learner": learner})
        with pytest.raises(InputError, match=told):
            workspace.judge({"learner": learner})
    assert not list((tmp_path / "out").glob("records/*")), "it is told before anything is asked"
    (section,) = _run(workspace, {"rag": Setting("rag")})
    assert [row[0] for row in section.rows] == ["rag"]


@pytest.mark.parametrize("told", ["[1]", '{"dataset": ["nq"]}'])
def test_a_folder_that_does_not_name_its_data_set_is_told(told, data, tmp_path):
    """It was a traceback."""
    folder = data("nq", test=BORN)
    (folder / "dataset.json").write_text(told)
    with pytest.raises(InputError, match=r"dataset\.json does not name its data set: expected an object"):
        Workspace(tmp_path / "out", folder, lm=LMChoice("pocket"))


def test_a_base_that_cannot_be_trained_is_told_before_anything_is_asked(data, tmp_path, capsys):
    """It was noticed in its own rows, after those before them had been answered."""
    argv = ["experiment", "table3", "--data", str(data("nq", test=BORN)), "--out", str(tmp_path / "out")]
    for more, told in (
        (["--base", "nonsense"], "--base: unknown language model 'nonsense'"),
        (["--base", "openai/x"], "--base: openai/x is at an endpoint, and weights are trained in this process"),
        (["--bases", "pocket-tiny,local/nowhere"], "--bases: local/nowhere: there is no folder"),
    ):
        assert cli.main([*argv, *more]) == 2
        assert told in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out/made").exists()


def test_a_table_that_would_be_empty_is_not_shown(data, endpoint, tmp_path):
    """Questions of one kind alone, and one program with none to compare it with."""
    workspace = Workspace(tmp_path / "out", data("nq", test=BORN), lm=endpoint, engine="bm25")
    with progress_bar(False) as bars:
        found = Experiment("t", "s", {"direct": Setting("direct")}, tables.main).run(workspace, bars)
    assert [section.title for section in found] == ["t", "Cost"] and all(section.rows for section in found)


def test_an_endpoint_that_is_down_ends_the_command(data, tmp_path, monkeypatch):
    """Else every row would wait for it in vain, and the page would show a table of holes."""
    from raisf.experiments import workspace as module
    from raisf.utils.errors import LMError

    def down(*args, **options):
        raise LMError("the endpoint is down")

    monkeypatch.setattr(module, "answer_all", down)
    workspace = Workspace(tmp_path / "out", data("nq", test=BORN), lm=LMChoice("pocket"), engine="bm25")
    with pytest.raises(LMError, match="down"):
        _run(workspace, {name: Setting(name) for name in ("direct", "rag", "cot")})


def test_prompts_that_are_too_long_cost_their_rows_and_no_table(data, tmp_path):
    """Two such rows one after the other passed for an LM that is down, and ended the table."""
    folder = data("nq", test=BORN)
    rows = [{"id": f"{n}", "text": f"Ada was born in Ulm, {n} {'and raised there ' * 35}."} for n in range(80)]
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, rows)))
    workspace = Workspace(tmp_path / "out", folder, lm=LMChoice("pocket"), engine="bm25")
    long = {name: Setting(name, {"k": 80}) for name in ("rag", "cot-rag")}
    (section,) = _run(workspace, {**long, "direct": Setting("direct")})
    assert [row[0] for row in section.rows] == ["direct"] and not workspace.lm_down
    assert all("give fewer or shorter passages" in workspace.left_out[name] for name in long)


def _all(folder, out, lm, *more):
    argv = ["experiment", "all", "--data", str(folder), "--out", str(out), "--zero-shot", "--json"]
    return cli.main([*argv, "--lm", lm.spec, "--api-base", lm.api_base, *more])


def test_all_experiments_go_on_where_one_cannot_be_run(data, endpoint, tmp_path, capsys):
    """The first table without a row that runs ended the command, and those after it were never made."""
    assert _all(data("nq", corpus=False, test=BORN), tmp_path / "out", endpoint) == 1
    found = json.loads(capsys.readouterr().out)
    assert {"table1", "fig2", "blendfilter-bm25"} <= found["experiments"].keys()
    assert {"table2", "table4", "blendfilter-k"} <= found["not_run"].keys()
    assert not found["experiments"].keys() & found["not_run"].keys()
    assert all("give --index" in found["not_run"][name] for name in ("table2", "blendfilter-k"))
    assert (tmp_path / "out/blendfilter-bm25/results.json").is_file()
    assert "not run" in (tmp_path / "out/report.html").read_text("utf-8")


def test_experiments_of_which_none_can_be_run_are_the_users_mistake(data, endpoint, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("raisf.commands.experiment.PAPERS", ("table2", "blendfilter-k"))
    assert _all(data("nq", corpus=False, test=BORN), tmp_path / "out", endpoint) == 2
    told = capsys.readouterr().err
    assert "no experiment can be run: table2 (" in told and "blendfilter-k (" in told and "give --index" in told


def test_all_experiments_end_at_once_where_the_lm_is_down(data, faulty, monkeypatch, tmp_path, capsys):
    """Else each of seventeen tables would wait for it."""
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setattr("raisf.lm.transport.BUSY_SECONDS", 0.1)
    with faulty.serve() as gone:
        lm = LMChoice("openai/x", api_base=gone.url)
    assert _all(data("nq", corpus=False, test=BORN), tmp_path / "out", lm, "--timeout", "2") == 1
    told = capsys.readouterr().err
    assert "cannot be reached" in told and "no experiment can be run" not in told
    assert not list((tmp_path / "out").glob("*/results.json"))


def test_questions_alone_give_the_closed_book_rows_and_say_what_the_others_lack(data, tmp_path):
    """NQ and TriviaQA come as a test split without passages."""
    workspace = Workspace(tmp_path / "out", data("nq", corpus=False, test=BORN), lm=LMChoice("pocket"))
    rows = {"direct": Setting("direct"), "rag": Setting("rag"), "direct, few-shot": Setting("direct", few_shot=True)}
    (section,) = _run(workspace, rows)
    assert [row[0] for row in section.rows] == ["direct"]
    assert "give --index" in workspace.left_out["rag"]
    assert "train.jsonl" in workspace.left_out["direct, few-shot"]


def test_strategyqa_is_scored_by_accuracy_and_gets_the_papers_yes_no_form(data, tmp_path):
    asked = [{"question": "Could Ada swim?", "answer": "yes"}, {"question": "Is Ulm in Bonn?", "answer": "no"}]
    workspace = Workspace(tmp_path / "out", data("strategyqa", test=asked), lm=LMChoice("pocket"), engine="bm25")
    (section,) = _run(workspace, {"direct": Setting("direct")})
    assert section.columns[:3] == ["program", "accuracy", "LM calls"]
    assert workspace.open(Setting("blendfilter")).yes_no is True
    others = Workspace(tmp_path / "others", data("hotpotqa", test=BORN), lm=LMChoice("pocket"), engine="bm25")
    assert others.open(Setting("blendfilter")).yes_no is False


def test_the_lm_that_answers_is_named_where_no_option_names_it(data, tmp_path, monkeypatch):
    """What one LM has learnt was taken for another's, and Table 3 called every default LM pocket."""
    folder, rows = data("nq", test=BORN), EXPERIMENTS["table3"].settings
    learnt = set()
    for spec in ("pocket-tiny", "pocket"):
        monkeypatch.setenv("RAISF_LM", spec)
        workspace = Workspace(tmp_path / "out", folder, engine="bm25")
        assert f"{spec}, LoRA" in rows(workspace) and workspace.lm.spec == spec
        learnt.add(workspace.learning.path_of(Setting("weights")))
    assert len(learnt) == 2


def test_evidence_is_quoted_first_by_the_pocket_models_alone(data, endpoint, tmp_path):
    """No paper does so; the pocket models read nothing else."""
    folder = data("nq", test=BORN)
    for lm, evidence in ((LMChoice("pocket"), True), (endpoint, False)):
        workspace = Workspace(tmp_path / f"out-{evidence}", folder, lm=lm, engine="bm25")
        assert {workspace.open(Setting(name)).evidence for name in ("rag", "self-ask", "ra-isf")} == {evidence}


def test_the_question_of_a_prompt_is_in_no_passage(data, tmp_path):
    """A passage that holds a training question shows its demonstration's answer."""
    from raisf.retrieval.index import open_index

    folder = data("nq", train=BORN[:1], test=BORN[1:])
    workspace = Workspace(tmp_path / "out", folder, lm=LMChoice("pocket"), engine="bm25")
    found = open_index(workspace.index())("Where was Ada born?", 3)
    assert {passage.pid for passage in found} <= {"Ada", "Bo"} and workspace.indexes.left_out == 1


def test_the_passages_that_are_not_in_an_index_are_told_by_later_runs_too(data, endpoint, tmp_path):
    """The note stood on the page of the run that made the index alone; one that is given lacks nothing."""
    folder, out = data("nq", train=BORN[:1], test=BORN[1:]), tmp_path / "out"
    index = out / "made/index-bm25"
    for _ in range(2):
        (section,) = _run(Workspace(out, folder, lm=endpoint, engine="bm25"), {"rag": Setting("rag")})
        assert "1 passages that hold a question of a prompt are not in the index." in section.text
    index.with_name("index-bm25-left-out.json").unlink()  # as an earlier version left it
    (section,) = _run(Workspace(out, folder, lm=endpoint, engine="bm25"), {"rag": Setting("rag")})
    assert "1 passages" in section.text
    given = Workspace(tmp_path / "other", folder, lm=endpoint, index=str(index))
    (section,) = _run(given, {"rag": Setting("rag"), "bm25": Setting("rag", engine="bm25")})
    assert "are not in the index" not in section.text
    argv = ["experiment", "blendfilter-cases", "--data", str(folder), "--out", str(tmp_path / "cli")]
    lm = ["--lm", "openai/x", "--api-base", endpoint.api_base]
    assert cli.main([*argv, *lm, "--index", str(index)]) == 0
    assert "passages left out" in (tmp_path / "cli/report.html").read_text("utf-8")


def _searched(workspace, **setting):
    return workspace.open(Setting("rag", **setting)).retriever


def test_every_row_of_a_table_searches_the_index_that_was_given(data, tmp_path, monkeypatch):
    """Rows that named an engine searched the data's small corpus, while the page named the given index."""
    from raisf.retrieval.index import build_index, remove_from_index
    from raisf.retrieval.passage import Passage

    given = tmp_path / "given"
    build_index([Passage(name, f"{name} was born in Rome.") for name in ("Di", "Ed", "gone")], given, engine="bm25")
    remove_from_index(given, "id = 'gone'")
    folder = data("nq", train=BORN[:1], dev=BORN[1:], test=BORN)
    options = {"lm": LMChoice("pocket"), "engine": "colbert", "checkpoint": "minilm", "index": str(given)}
    workspace = Workspace(tmp_path / "out", folder, **options)
    assert _searched(workspace).path == _searched(workspace, engine="bm25").path == given
    dense = _searched(workspace, engine="dense")
    assert {passage.pid for passage in dense.passages} == {"Di", "Ed"} and dense.path.parent == tmp_path / "out/made"
    assert _searched(workspace, engine="dense").path == dense.path, "it is made once"
    monkeypatch.setattr(workspace.indexes, "tuned", lambda program, *_: program.retriever.path)
    assert workspace._index_of(Setting("replug", tuned=True)) == dense.path
    # Of another index another one is made.
    build_index([Passage("Flo", "Flo was born in Rome.")], tmp_path / "other", engine="dense")
    others = Workspace(tmp_path / "out", folder, **options | {"index": str(tmp_path / "other")})
    assert [passage.pid for passage in _searched(others, engine="bm25").passages] == ["Flo"]
    assert workspace._index_of(Setting("rag", engine="dense")) != others._index_of(Setting("rag", engine="dense"))


def test_a_row_says_why_it_cannot_search_the_passages_of_a_served_index(data, endpoint, tmp_path):
    """It was left out with "give --index", which had been given; with a corpus it searched that instead."""
    from raisf.retrieval.index import build_index
    from raisf.retrieval.passage import Passage
    from raisf.retrieval.serving.server import IndexServer

    index = build_index([Passage("Di", "Di was born in Rome.")], tmp_path / "given", engine="bm25")
    with IndexServer(index) as server:
        thread = threading.Thread(target=server.serve, daemon=True)
        thread.start()
        workspace = Workspace(tmp_path / "out", data("nq", test=BORN), lm=endpoint, index=server.url)
        rows = {"rag, BM25": Setting("rag", engine="bm25"), "rag, dense": Setting("rag", engine="dense")}
        (section,) = _run(workspace, rows)
        server.stop()
        thread.join()
    assert [row[0] for row in section.rows] == ["rag, BM25"]
    why = f"a dense index, and the passages of {server.url} cannot be read from here"
    assert why in workspace.left_out["rag, dense"] and "give --index a folder" in workspace.left_out["rag, dense"]


def test_strategyqa_brings_its_facts_as_a_corpus():
    from raisf.data.schemas import paragraphs

    row = {
        "question": "Could Ada swim?",
        "answer": True,
        "term": "Ada",
        "facts": ["Ada lived on a river.", "She swam."],
    }
    assert paragraphs(row) == [("Ada", "Ada lived on a river."), ("Ada", "She swam.")]
    assert paragraphs({**row, "facts": "One text."}) == [("Ada", "One text.")] and paragraphs({"answer": True}) == []


def test_react_reads_five_passages_in_blendfilters_tables():
    for name in ("blendfilter-main", "blendfilter-bm25"):
        assert EXPERIMENTS[name].settings["react"].options == {"k": 5}


@pytest.mark.slow
def test_judges_of_a_local_base_serve_an_lm_at_an_endpoint(make_home, faulty, monkeypatch, tmp_path):
    """The paper's main setting: GPT-3.5 answers, the judges are Llama's weights."""
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    home = make_home(train=30, dev=10, test=4)
    known: dict[str, str] = {}
    with faulty.serve(answer=lambda asked: {"answer": known.get(asked["question"], "no idea")}) as served:
        lm = LMChoice("openai/x", api_base=served.url)
        options = {"lm": lm, "index": str(home / "index"), "base": "pocket", "rows": 8}
        workspace = Workspace(tmp_path / "out", home / "world", **options)
        # A judge of knowledge learns from both: this LM knows every other fact.
        facts = [step for example in [*workspace.train, *workspace.dev] for step in steps(example)]
        known |= {step.question: step.answers[0] for number, step in enumerate(facts) if number % 2}
        program = workspace.open(Setting("weights", training={"epochs": 1}))
        of = {name: type(predictor.lm).__name__ for name, predictor in program.named_predictors()}
        assert {name for name, kind in of.items() if kind == "LocalLM"} == {"know", "relevant", "decompose"}
        assert of["answer_directly"] == "EndpointLM"


@pytest.mark.slow
def test_a_teacher_makes_the_judges_of_a_set_without_gold_passages(make_home, tmp_path):
    """RA-ISF with trained judges on NQ, TriviaQA and StrategyQA was out of reach: found 0 'relevant'."""
    from raisf.utils.files import read_jsonl, write_jsonl

    home = make_home(train=30, dev=10, test=4)
    bare = tmp_path / "bare"
    bare.mkdir()
    for split in ("train", "dev", "test"):
        rows = read_jsonl(home / f"world/{split}.jsonl")
        write_jsonl(bare / f"{split}.jsonl", ({key: row[key] for key in ("id", "question", "answers")} for row in rows))
    without = Workspace(tmp_path / "without", bare, index=str(home / "index"), rows=8)
    with pytest.raises(InputError, match="found 0 'relevant'"):
        _run(without, {"ra-isf, weights": Setting("weights", training={"epochs": 1})})
    teacher = LMChoice("pocket").open()
    workspace = Workspace(tmp_path / "with", bare, index=str(home / "index"), rows=8, teacher=teacher)
    table, taught = _run(workspace, {"ra-isf, weights": Setting("weights", training={"epochs": 1})})
    assert table.rows[0][0] == "ra-isf, weights" and taught.title == "Labels by the teacher"
    assert "calls" in taught.text and any("relevance" in row[0] for row in taught.rows)
    # The few-shot row's judges are shown the teacher's labels too.
    report = workspace.open(Setting("ra-isf", few_shot=True)).compile_report
    assert report["rows"]["relevant"] and report["judge_rows"]["lm"] == teacher.model


def test_the_page_names_the_index_that_an_encoder_of_ones_own_made(data, endpoint, tmp_path):
    """It named a folder that was not there."""
    options = {"lm": endpoint, "engine": "dense", "checkpoint": "facebook/contriever-msmarco"}
    indexes = Workspace(tmp_path / "out", data("nq", test=BORN), **options).indexes
    named = indexes.named([None])
    assert "index-dense-contriever-msmarco-" in named
    raisf.index(["Ada was born in Ulm."], engine="bm25", out=named)
    indexes._missing_in = lambda path: 0
    assert str(indexes.path()) == named, "what is there is not made again"
