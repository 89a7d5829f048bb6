"""What a DSPy user knows of modules and LMs holds for ours: a list, each line small."""

import asyncio
import json
import multiprocessing
import pickle
import threading
from typing import Any

import cloudpickle
import dspy
import pytest
from dspy.streaming import StatusMessage, StatusMessageProvider, StreamListener, StreamResponse
from dspy.utils.callback import BaseCallback

import raisf
from raisf.lm.connect import connect
from raisf.lm.endpoint import EndpointLM
from raisf.programs.baselines.direct import Direct
from raisf.programs.ra_isf import RAISF
from raisf.programs.registry import PROGRAMS, options, searches
from raisf.utils.errors import InputError
from tests.scripted import ScriptedLM

EXAMPLES = [dspy.Example(question=f"root {n}", answer=f"A(root {n})").with_inputs("question") for n in range(3)]


def right(example: Any, prediction: Any, trace: Any = None) -> bool:
    return prediction.answer == example.answer


@pytest.fixture
def lm(scripted: Any, plan: Any) -> Any:
    return scripted(root=plan(subs=["a", "b #1"]), a=plan(know=True), b=plan(relevant=1))


class Lines:
    """A retriever that another process can have too."""

    path, corpus_hash = None, "lines"

    def __call__(self, query: str, k: int) -> list[raisf.Passage]:
        return [raisf.Passage(pid=str(n), title="", text=f"{n} of {query}") for n in range(k)]

    def search_many(self, queries: Any, k: int) -> Any:
        return [self(query, k) for query in queries]


# Which LM is asked, and what is kept of it


def test_configure_and_context_choose_the_lm(lm: Any, scripted: Any, plan: Any, shelf: Any) -> None:
    other = scripted(root=plan(know=True, answer="other"))
    before = dspy.settings.lm
    try:
        dspy.configure(lm=lm)
        assert RAISF(shelf)(question="root").answer == "A(root)"
        with dspy.context(lm=other):
            assert RAISF(shelf)(question="root").answer == "other"
    finally:
        dspy.configure(lm=before)


def test_usage_is_tracked(lm: Any, shelf: Any) -> None:
    with dspy.context(lm=lm, track_usage=True):
        usage = RAISF(shelf)(question="root").get_lm_usage()
    assert usage["scripted/lm"]["prompt_tokens"] > 0


def test_callbacks_see_modules_and_calls(lm: Any, shelf: Any) -> None:
    seen: list[str] = []

    class Watch(BaseCallback):
        def on_module_start(self, call_id: str, instance: Any, inputs: Any) -> None:
            seen.append(type(instance).__name__)

        def on_lm_end(self, call_id: str, outputs: Any, exception: Any = None) -> None:
            seen.append("call")

    with dspy.context(lm=lm, callbacks=[Watch()]):
        RAISF(shelf)(question="root")
    assert seen[0] == "RAISF" and seen.count("call") == len(lm.calls) == seen.count("Predict")


def test_history_is_kept_and_can_be_bounded(lm: Any, shelf: Any) -> None:
    with dspy.context(lm=lm, max_history_size=3):
        program = RAISF(shelf)
        program(question="root")
        assert len(lm.history) == len(program.history) == 3
    lm.history.clear()
    with dspy.context(lm=lm, disable_history=True):
        program(question="root")
    assert lm.history == []


# Ways to run


def test_acall_and_asyncify(lm: Any, shelf: Any) -> None:
    program = RAISF(shelf)

    async def both() -> Any:
        return await asyncio.gather(program.acall(question="root"), dspy.asyncify(program)(question="root"))

    with dspy.context(lm=lm):
        assert [prediction.answer for prediction in asyncio.run(both())] == ["A(root)"] * 2


def test_batch_and_parallel(lm: Any, shelf: Any) -> None:
    program = RAISF(shelf)
    with dspy.context(lm=lm):
        batched = program.batch(EXAMPLES, num_threads=2, disable_progress_bar=True)
        parallel = dspy.Parallel(num_threads=2, disable_progress_bar=True)([(program, e) for e in EXAMPLES])
    assert [p.answer for p in batched] == [p.answer for p in parallel] == [e.answer for e in EXAMPLES]


def test_dspys_ensemble_votes_on_the_answers(lm: Any, shelf: Any) -> None:
    program = RAISF(shelf)
    voting: Any = dspy.Ensemble(reduce_fn=dspy.majority).compile([program, program.deepcopy()])
    with dspy.context(lm=lm):
        assert voting(question="root").answer == "A(root)"


def test_evaluate_and_bootstrap_few_shot(lm: Any, shelf: Any) -> None:
    with dspy.context(lm=lm):
        evaluate = dspy.Evaluate(devset=EXAMPLES, metric=right, num_threads=2, display_progress=False)
        assert evaluate(RAISF(shelf)).score == 100
        teacher = dspy.BootstrapFewShot(metric=right, max_bootstrapped_demos=2, max_labeled_demos=0)
        compiled = teacher.compile(RAISF(shelf), trainset=EXAMPLES)
        assert compiled.know.demos and compiled(question="root").answer == "A(root)"


def test_a_users_module_may_hold_or_be_one_of_ours(lm: Any, shelf: Any) -> None:
    class Wrap(dspy.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rag = RAISF(shelf)

        def forward(self, question: str) -> Any:
            return self.rag(question=question)

    class Mine(RAISF):
        def _answer(self, run: Any, question: str) -> Any:
            return super()._answer(run, question)

    with dspy.context(lm=lm):
        assert Wrap()(question="root").answer == Mine(shelf)(question="root").answer == "A(root)"
    assert "rag.know" in dict(Wrap().named_predictors())


def test_an_agent_uses_it_as_a_function_and_a_printed_prediction_is_short(lm: Any, shelf: Any) -> None:
    program = RAISF(shelf)
    program.set_lm(lm)

    def look_up(question: str) -> str:
        """Answers questions about roots."""
        return program(question=question).answer

    def acts(fields: Any) -> dict[str, Any]:
        name, given = ("finish", {}) if "A(root)" in fields["trajectory"] else ("look_up", {"question": "root"})
        return {"next_thought": "", "next_tool_name": name, "next_tool_args": given, "reasoning": "", "answer": "a"}

    with dspy.context(lm=ScriptedLM(acts)):
        agent = dspy.ReAct("question -> answer", tools=[look_up])
        assert agent(question="What?").trajectory["observation_0"] == "A(root)"
    shown = repr(program(question="root"))
    assert "answer='A(root)'" in shown and "lm_calls=" in shown and len(shown) < 500


# Streams


class Told(StatusMessageProvider):
    def lm_start_status_message(self, instance: Any, inputs: Any) -> str:
        return "asking"


def reading(fields: Any) -> dict[str, str]:
    verdict = "relevant" if "passage" in fields else "unknown"
    return {"verdict": verdict, "evidence": "e", "answer": "a long answer"}


@pytest.mark.parametrize("program_is_async", [False, True])
@pytest.mark.parametrize("reader_is_async", [False, True])
@pytest.mark.parametrize("listens", [False, True])
def test_streamify_gives_status_tokens_and_the_prediction(
    faulty: Any, program_is_async: bool, reader_is_async: bool, listens: bool
) -> None:
    with faulty.serve(answer=reading) as endpoint:
        program = RAISF(Lines(), max_depth=0)
        program.set_lm(connect("openai/x", api_base=endpoint.url).copy(cache=False))
        listener = StreamListener("answer", predict=program.answer_from, predict_name="answer_from")
        stream = dspy.streamify(
            program,
            status_message_provider=Told(),
            stream_listeners=[listener] if listens else [],
            is_async_program=program_is_async,
            async_streaming=reader_is_async,
        )

        async def read() -> list[Any]:
            return [item async for item in stream(question="Who?")]

        items = asyncio.run(read()) if reader_is_async else list(stream(question="Who?"))
    statuses = [item.message for item in items if isinstance(item, StatusMessage)]
    assert items[-1].answer == "a long answer" and items[-1].trace.cost.lm_calls == len(endpoint.seen) == 7
    if listens:  # DSPy lets only the predictors that are listened to write to the stream
        said = "".join(item.chunk for item in items if isinstance(item, StreamResponse))
        assert said == "a long answer" and statuses.count("asking") == 1
    else:
        assert statuses.count("asking") == 7 and len(items) > 50


@pytest.mark.slow
def test_a_slow_search_is_waited_for_no_longer_than_max_seconds_where_answers_stream(faulty: Any) -> None:
    """The question came to its end when the retriever did."""
    over = threading.Event()
    program = RAISF(lambda query, k: [over.wait(60)] and ["x"] * k, max_seconds=2)
    with faulty.serve(answer=reading) as endpoint:
        program.set_lm(connect("openai/x", api_base=endpoint.url).copy(cache=False))
        try:
            *_, said = dspy.streamify(program, async_streaming=False)(question="Who?")
            assert (said.answer, said.trace.root.route) == ("unknown", "budget") and said.trace.cost.seconds < 30
        finally:
            over.set()


# Copies in other processes and on disk


def test_programs_and_lms_are_pickled_without_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    program = RAISF(Lines(), k=7)
    program.set_lm(connect("openai/x", api_base="http://127.0.0.1:1/v1", adapter="compact"))
    for library in (pickle, cloudpickle):
        written = library.dumps(program)
        assert b"sk-secret" not in written
        again = library.loads(written)
        assert (again.k, again.know.lm.api_base) == (7, "http://127.0.0.1:1/v1")
        assert isinstance(again.know.lm, EndpointLM) and again.know.lm.adapter.__class__.__name__ == "CompactAdapter"


def _ask(program: Any) -> str:
    return program(question="Who?").answer


def test_a_program_works_in_another_process(faulty: Any) -> None:
    """A thread that this process has begun, the endpoints' loop, is not in a forked one."""
    with faulty.serve() as endpoint:
        program = Direct()
        program.set_lm(connect("openai/x", api_base=endpoint.url).copy(cache=False))
        here = _ask(program)
        with multiprocessing.get_context("fork").Pool(1) as pool:
            assert pool.apply_async(_ask, (program,)).get(20) == here


def test_save_program_and_load(tmp_path: Any) -> None:
    program = RAISF(Lines(), k=7)
    program.set_lm(connect("openai/x", api_base="http://127.0.0.1:1/v1"))
    program.save(tmp_path / "whole", save_program=True)
    again: Any = dspy.load(str(tmp_path / "whole"), allow_pickle=True)
    assert (again.k, again.know.lm.model) == (7, "openai/x")


@pytest.mark.parametrize("name", PROGRAMS)
def test_json_keeps_a_programs_options(name: str, tmp_path: Any) -> None:
    kind = PROGRAMS[name]
    given: dict[str, Any] = {"max_calls": 9, "max_seconds": 2.5}
    if searches(kind):
        given["retriever"] = Lines()
    if "k" in options(kind(**given)):
        given["k"] = 7
    program = kind(**given)
    program.save(tmp_path / "state.json")
    bare = kind(Lines()) if searches(kind) else kind()
    bare.load(tmp_path / "state.json")
    assert options(bare) == options(program)


def test_json_keeps_thresholds_and_what_shapes_the_predictors(tmp_path: Any) -> None:
    program = RAISF(Lines(), relevance="listwise", know_threshold=0.25, use_know=False)
    program.relevant.demos = [dspy.Example(question="q", passages=["p"], relevant_ids=[1])]
    program.save(tmp_path / "state.json")
    again = RAISF(Lines())
    again.load(tmp_path / "state.json")
    assert options(again) == options(program)
    assert again.retriever is not None  # else the program that was saved answers no question once it is loaded
    assert list(again.relevant.signature.output_fields) == ["relevant_ids"] and again.relevant.demos


def test_json_of_another_program_or_of_bad_options_is_said(tmp_path: Any) -> None:
    RAISF(Lines()).save(tmp_path / "state.json")
    state = json.loads((tmp_path / "state.json").read_text())
    for changed, says in (({"k": 0}, "k is 0"), ({"nope": 1}, "nope"), ({"k": "7"}, "k is '7'")):
        (tmp_path / "bad.json").write_text(json.dumps({**state, "options": {**state["options"], **changed}}))
        with pytest.raises(InputError, match=says):
            RAISF(Lines()).load(tmp_path / "bad.json")


def test_a_state_that_is_refused_leaves_the_program_as_it_was(tmp_path: Any) -> None:
    """DSPy refuses a local LM's class; half of the state, without its LM and demonstrations, is another program."""
    saved, program = RAISF(Lines(), k=7, know="truth"), RAISF(Lines(), k=3)
    saved.set_lm(connect("pocket"))
    before = dict(vars(program))
    with pytest.raises(ValueError, match="allow_unsafe_lm_state"):
        program.load_state(saved.dump_state())
    assert vars(program) == before


def test_json_that_dspy_wrote_without_options_still_loads(tmp_path: Any) -> None:
    RAISF(Lines(), k=7).save(tmp_path / "state.json")
    state = json.loads((tmp_path / "state.json").read_text())
    del state["options"]
    (tmp_path / "state.json").write_text(json.dumps(state))
    program = RAISF(Lines(), k=3)
    program.load(tmp_path / "state.json")
    assert program.k == 3


def test_a_connected_lm_is_saved_in_json_as_dspys_own_and_not_where_it_is_at_an_endpoint_of_ones_own(
    tmp_path: Any,
) -> None:
    """By its name alone it would send what was asked there to the provider of that name."""
    for where, kept in ((None, "openai/x"), ("http://127.0.0.1:1/v1", None)):
        program, again = Direct(), Direct()
        program.set_lm(connect("openai/x", api_base=where, temperature=0.5))
        program.save(tmp_path / "state.json")
        assert "127.0.0.1" not in (tmp_path / "state.json").read_text()
        again.load(tmp_path / "state.json")
        lm = again.answer_directly.lm
        assert getattr(lm, "model", None) == kept and (lm is None or lm.kwargs["temperature"] == 0.5)
    with pytest.raises(InputError, match="needs a language model"):
        again(question="Who?")


def test_save_with_a_folder_writes_an_artifact(tmp_path: Any) -> None:
    raisf.Direct(max_calls=3).save(tmp_path / "folder")
    assert raisf.load(tmp_path / "folder").max_calls == 3


@pytest.mark.parametrize("limit", [1, 2, 3, 5])
def test_an_adapter_that_asks_twice_costs_two_calls(shelf, limit):
    """DSPy's TwoStepAdapter has a second LM extract the fields; where it could not be read, it was asked once more."""
    main = ScriptedLM(lambda fields: "I do not know that.")
    extracting = ScriptedLM(lambda fields: {"verdict": "unknown"})  # of a passage no verdict
    main.adapter = dspy.TwoStepAdapter(extracting)
    program = RAISF(shelf, max_calls=limit)
    program.set_lm(main)
    cost = program(question="root").trace.cost
    assert len(main.calls) == len(extracting.calls) == limit // 2 and cost.lm_calls == limit // 2 * 2
