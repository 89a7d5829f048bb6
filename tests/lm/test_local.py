"""A local Llama as a DSPy LM: its verdicts keep their probabilities through caches, copies and saved programs."""

import asyncio
import contextlib
import json
import shutil

import dspy
import pytest
from dspy.streaming import StreamListener
from dspy.utils.exceptions import AdapterParseError

from raisf.lm.connect import connect
from raisf.lm.local.clients import Recorder
from raisf.lm.local.engine import InferenceEngine
from raisf.lm.local.model import LocalLM
from raisf.lm.local.weights import weights_folder
from raisf.programs.baselines.direct import Direct
from raisf.signatures.answers import DirectAnswer
from raisf.signatures.judges import SelfKnowledge
from raisf.utils.errors import InputError
from tests.scripted import ScriptedLM

QUESTION = "Who founded Velmora?"


@pytest.fixture
def lm(llama):
    return LocalLM(f"local/{llama}", max_tokens=8)


def ask(lm, signature=SelfKnowledge, **config):
    with dspy.context(lm=lm, adapter=lm.adapter):
        return dspy.Predict(signature)(question=QUESTION, config=config)


def test_a_verdict_comes_with_its_probabilities(lm):
    prediction = ask(lm)
    assert set(prediction.probabilities) == {"know", "unknown"}
    assert sum(prediction.probabilities.values()) == pytest.approx(1)
    assert prediction.verdict == max(prediction.probabilities, key=prediction.probabilities.get)


def test_who_has_dspy_train_it_is_told_what_does(lm):
    program, asked = dspy.Predict(SelfKnowledge), dspy.Example(question=QUESTION).with_inputs("question")
    program.set_lm(lm)
    with pytest.raises(InputError, match=r"raisf\.FinetuneJudges trains it"):
        dspy.BootstrapFinetune(num_threads=1).compile(program, [asked])


@pytest.mark.parametrize("adapter", [None, dspy.JSONAdapter(), dspy.XMLAdapter()], ids=["chat", "json", "xml"])
def test_what_a_program_of_ours_asks_streams_under_each_of_dspys_adapters(adapter):
    """In JSON and XML, listeners found none of the marks that they look for."""
    with dspy.context(lm=connect("pocket").copy(cache=False), adapter=adapter):
        stream = dspy.streamify(Direct(), stream_listeners=[StreamListener("answer")], async_streaming=False)
        *tokens, said = stream(question="In which sea does the Funzol River end?")
    assert len(tokens) > 1 and "".join(token.chunk for token in tokens).strip('"') == said.answer


def test_async_calls_give_the_same(lm):
    async def call():
        with dspy.context(lm=lm, adapter=lm.adapter):
            return await dspy.Predict(SelfKnowledge).acall(question=QUESTION)

    assert asyncio.run(call()).probabilities == pytest.approx(ask(lm).probabilities)


def test_a_cached_verdict_keeps_its_probabilities_and_costs_nothing(lm):
    def call():
        with dspy.context(lm=lm, adapter=lm.adapter), dspy.track_usage() as usage:
            return dspy.Predict(SelfKnowledge)(question=QUESTION), usage.get_total_tokens()

    (first, spent), (second, nothing) = call(), call()
    assert second.probabilities == first.probabilities
    assert spent[lm.model]["prompt_tokens"] > 10
    assert spent[lm.model]["completion_tokens"] >= 1
    assert nothing == {}


def test_other_weights_in_the_same_folder_never_meet_old_answers(llama, other_llama, tmp_path):
    folder = shutil.copytree(llama, tmp_path / "llama")
    before = ask(LocalLM(f"local/{folder}"))
    shutil.copytree(other_llama, folder, dirs_exist_ok=True)
    after = ask(LocalLM(f"local/{folder}"))
    assert after.probabilities != pytest.approx(before.probabilities, abs=1e-3)
    assert after.probabilities == pytest.approx(ask(LocalLM(f"local/{other_llama}")).probabilities)


def test_a_saved_program_finds_its_weights_again_and_refuses_others(lm, llama, other_llama, tmp_path):
    folder = shutil.copytree(llama, tmp_path / "llama")
    program = dspy.Predict(SelfKnowledge)
    program.lm = LocalLM(f"local/{folder}", max_tokens=5, adapter="pocket")
    state = json.loads(json.dumps(program.dump_state()))
    loaded = dspy.Predict(SelfKnowledge)
    loaded.load_state(state, allow_unsafe_lm_state=True)
    assert loaded.lm.base_engine is program.lm.base_engine
    assert loaded.lm.kwargs == program.lm.kwargs
    assert loaded.lm.adapter.instructions is False
    shutil.copytree(other_llama, folder, dirs_exist_ok=True)
    with pytest.raises(InputError, match=r"have changed.*Compile again what was made .* give another --out\), or name"):
        loaded.load_state(state, allow_unsafe_lm_state=True)


def test_a_copied_program_shares_the_weights(lm):
    program = dspy.Predict(SelfKnowledge)
    program.lm = lm
    assert program.deepcopy().lm.engine is lm.engine
    assert lm.copy(temperature=1.0).engine is lm.engine


def test_the_trace_of_a_call_holds_its_outcome(lm):
    with dspy.context(lm=lm, adapter=lm.adapter, trace=[]):
        prediction = dspy.Predict(SelfKnowledge)(question=QUESTION)
        [(_, inputs, outcome)] = dspy.settings.trace
    assert inputs == {"question": QUESTION}
    assert outcome is prediction


def test_candidates_differ_and_are_as_many_as_asked_for(lm):
    answers = lm("question: Who?\nanswer:", n=3, temperature=1.5)
    assert len(answers) == 3
    assert len(set(answers)) > 1
    assert lm("question: Who?\nanswer:", n=3, temperature=1.5) == answers


@pytest.mark.parametrize("given", ["call", "lm"])
def test_candidates_of_a_seed_differ_and_are_the_same_again(lm, given):
    """DSPy sends one request `n` times, with one seed: they were all alike."""
    options = {"n": 3, "temperature": 1.5, "seed": 5}
    asking = lm.copy(cache=False, **(options if given == "lm" else {}))
    call = options if given == "call" else {}
    answers = asking("question: Who?\nanswer:", **call)
    awaited = asyncio.run(asking.acall("question: Who?\nanswer:", **call))
    assert answers == awaited and len(answers) == 3 and len(set(answers)) > 1
    alone = [lm("question: Who?\nanswer:", temperature=1.5, seed=seed)[0] for seed in (5, 6, 7)]
    assert answers == alone


def test_the_questions_of_a_set_do_not_share_their_draws(lm):
    """With one seed all were drawn alike: of two hundred answers to yes or no most were "No", by another seed few."""
    first = {lm(f"question: {name}?\nanswer:", temperature=1.5, seed=5, max_tokens=1)[0] for name in "ABCDEFGH"}
    assert len(first) > 4  # at its nearly even odds they were one


def test_an_lms_options_reach_its_model(lm):
    def texts(**options):
        sampling = lm.copy(temperature=1.0, cache=False, **options)
        return {sampling("question: Who?\nanswer:", seed=n)[0] for n in range(4)}

    assert len(texts(top_p=1e-6)) == 1
    assert len(texts(top_p=1.0)) > 1
    with pytest.raises(Exception, match="top_k"):
        texts(top_k=5)


def asked(lm, **config):
    """The requests that a call makes."""
    recorder = Recorder()
    copied = lm.copy(engine=recorder)
    with dspy.context(lm=copied, adapter=lm.adapter), contextlib.suppress(AdapterParseError):
        dspy.Predict(DirectAnswer)(question="Who?", config=config)
    return recorder.seen


@pytest.mark.parametrize("stop", ["END", ["END"]])
def test_a_calls_own_stop_and_limit_hold(lm, stop):
    """They were dropped without a word, and the answer was longer than it was asked to be."""
    [request] = asked(lm, stop=stop, max_completion_tokens=7)
    assert (request.config.stop, request.config.max_tokens) == (("\n\n", "END", "\nquestion:"), 7)
    [usual] = asked(lm)
    assert (usual.config.stop, usual.config.max_tokens) == (("\n\n", "\nquestion:"), lm.kwargs["max_tokens"])
    [of_the_lm] = asked(lm.copy(stop=["END"]))
    assert of_the_lm.config.stop == ("\n\n", "END", "\nquestion:")


def test_an_answer_ends_where_the_lm_begins_another_block(lm):
    """It wrote on until the limit, and the answer on its first line was thrown away as cut off."""
    recorder = Recorder()
    with dspy.context(lm=lm.copy(engine=recorder), adapter=lm.adapter), contextlib.suppress(AdapterParseError):
        dspy.Predict("question, passages: list[str] -> answer")(question="Who?", passages=["One.", "Two."])
    [request] = recorder.seen
    assert request.config.stop == ("\n\n", "\nquestion:", "\npassage:")
    with dspy.context(lm=lm.copy(engine=recorder, stop=["A", "B", "C"]), adapter=lm.adapter):
        with contextlib.suppress(AdapterParseError):
            dspy.Predict("question -> answer")(question="Who?")
    assert recorder.seen[-1].config.stop == ("\n\n", "A", "B", "C"), "more than four are refused by some endpoints"


def test_what_was_cut_off_is_read_by_no_second_lm_either(lm):
    extracting = ScriptedLM(lambda fields: {"answer": "Oslo"})
    cut = lm.copy(max_tokens=1)
    cut.adapter = dspy.TwoStepAdapter(extracting)
    program = Direct()
    program.set_lm(cut)
    trace = program(question="Who?").trace
    assert (trace.root.answer, trace.unreadable, extracting.calls) == ("unknown", 1, [])


@pytest.mark.parametrize("config", [{"reasoning_effort": "high"}, {"logit_bias": {"5": 1}}, {"n": -1}])
def test_an_option_that_would_be_lost_is_refused(lm, config):
    with pytest.raises(InputError, match=next(iter(config))):
        asked(lm, **config)
    with pytest.raises(InputError, match=next(iter(config))), dspy.context(lm=lm):  # also from DSPy's own format
        dspy.Predict(DirectAnswer)(question="Who?", config=config)


def test_an_endpoint_in_the_compact_format_hears_them_too(faulty):
    with faulty.serve(answer=lambda fields: " Oslo") as endpoint:
        lm = connect("openai/x", api_base=endpoint.url, adapter="compact")
        with dspy.context(lm=lm, adapter=lm.adapter):
            dspy.Predict(DirectAnswer)(question="Who?", config={"stop": ["END"]})
        assert endpoint.seen[-1][2]["stop"] == ["\n\n", "END", "\nquestion:"]


def test_the_chat_format_works_too(llama):
    lm = LocalLM(f"local/{llama}", max_tokens=4, adapter="chat")
    with pytest.raises(dspy.utils.exceptions.AdapterParseError):  # random weights know no format
        ask(lm, DirectAnswer)


def test_the_weights_are_read_at_the_first_question(llama, monkeypatch):
    monkeypatch.setattr(InferenceEngine, "load", lambda self: pytest.fail("read too early"))
    LocalLM(f"local/{llama}")


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ([], "no config.json"),
        (["config.json"], "no weights"),
        (["config.json", "pytorch_model.bin"], r"pytorch_model\.bin.*save_pretrained"),
    ],
)
def test_a_folder_that_is_no_usable_model_is_named_with_the_remedy(tmp_path, files, says):
    for name in files:
        (tmp_path / name).write_text("{}")
    with pytest.raises(InputError, match=says):
        LocalLM(f"local/{tmp_path}")


@pytest.mark.parametrize("name", ["no/such-model", "no/such/folder/at/all", "./nowhere"])
def test_a_model_that_is_nowhere_is_named(name):
    with pytest.raises(InputError, match="there is no folder"):
        LocalLM(f"local/{name}")


def test_a_hub_id_is_read_from_the_hubs_own_folders(llama, tmp_path, monkeypatch):
    commit = "0" * 40
    repository = tmp_path / "models--house--llama"
    shutil.copytree(llama, repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    assert weights_folder("house/llama") == repository / "snapshots" / commit
