"""A local LM under DSPy's own conventions: configured once, it answers whatever DSPy asks, in its own format."""

import asyncio
import copy
import json
import multiprocessing
import pickle
import sys
from typing import Literal

import cloudpickle
import dspy
import pytest
from dspy.streaming import StreamListener, StreamResponse

from raisf.lm.adapter import adapter_named
from raisf.lm.chat import UnreadableReply, typed_calls
from raisf.lm.chat_format import chat_call
from raisf.lm.connect import connect
from raisf.lm.local.inference import Rows
from raisf.lm.local.model import LocalLM
from raisf.lm.options import seeds_of
from raisf.signatures import answers, critique, judges, reasoning

PASSAGES = ["Velmora | Velmora was founded by Kastrel in 1777.", "Ulm | Oran «founded»\nUlm.", "None"]
SIGNATURES = [
    found
    for module in (answers, critique, judges, reasoning)
    for found in vars(module).values()
    if isinstance(found, type) and issubclass(found, dspy.Signature) and found is not dspy.Signature
]
ADAPTERS = [dspy.ChatAdapter(), dspy.JSONAdapter(), dspy.XMLAdapter()]


@pytest.fixture(scope="module")
def pocket() -> LocalLM:
    lm = connect("pocket", max_tokens=60)
    assert isinstance(lm, LocalLM)
    return lm


def values(signature, part):
    """A value for each field, of its type."""
    found = {}
    for name, field in getattr(signature, part).items():
        if field.annotation is str:
            found[name] = f"the {name} of\n Velmora: None, [1] or «2»"
        elif "Literal" in str(field.annotation):
            found[name] = field.annotation.__args__[0]
        elif field.annotation == list[int]:
            found[name] = [3, 1]
        else:
            found[name] = PASSAGES
    return found


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda adapter: type(adapter).__name__)
@pytest.mark.parametrize("signature", SIGNATURES, ids=lambda signature: signature.__name__)
def test_what_dspys_adapters_ask_reads_as_the_models_own_format(adapter, signature):
    inputs = values(signature, "input_fields")
    demo = dspy.Example(**inputs, **values(signature, "output_fields"))
    torn = {**inputs, next(iter(signature.output_fields)): "half"} if len(signature.output_fields) > 1 else demo
    call = chat_call(adapter.format(signature, [demo, torn, demo], inputs))
    assert call is not None
    for name in ("compact", "pocket"):
        own = adapter_named(name)
        expected = own.prompt(signature, inputs, [demo, demo] if torn is not demo else [demo] * 3)
        assert own.prompt(call.signature, call.inputs, call.demos) == expected
    outputs = values(signature, "output_fields")
    assert adapter.parse(signature, call.answer(outputs)) == {
        name: value if isinstance(value, list) else value.strip() for name, value in outputs.items()
    }


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda adapter: type(adapter).__name__)
@pytest.mark.parametrize(
    ("annotation", "value", "reads"),
    [
        (dict[str, list[str]], {"tea": ["2 euro"], "milk": ["1 euro"]}, "2 euro"),  # its keys were all that was read
        (list[list[str]], [["tea", "2 euro"], ["milk"]], "2 euro"),
        (list[str] | None, ["tea", "milk"], "thing: tea\nthing: milk"),
        (list[int] | None, None, "question: Q?"),
    ],
    ids=["dict", "lists", "list or None", "None"],
)
def test_nothing_of_an_input_is_lost_whatever_its_type(pocket, adapter, annotation, value, reads):
    fields = {"things": (annotation, dspy.InputField()), "question": (str, dspy.InputField())}
    signature = dspy.Signature({**fields, "answer": (str, dspy.OutputField())})
    call = chat_call(adapter.format(signature, [], {"things": value, "question": "Q?"}))
    assert reads in pocket.adapter.prompt(call.signature, call.inputs)


def test_other_messages_are_left_alone(pocket):
    assert chat_call([{"role": "user", "content": "hello"}]) is None
    assert chat_call([{"role": "system", "content": "be kind"}, {"role": "user", "content": "hello"}]) is None
    assert chat_call([{"role": "user", "content": [{"type": "text", "text": "hello"}]}]) is None
    assert isinstance(pocket("question: Who?\nanswer:")[0], str)


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda adapter: type(adapter).__name__)
def test_a_demonstration_nested_too_deeply_is_none(adapter):
    signature = dspy.Signature("question -> answer")
    system, asked = adapter.format(signature, [], {"question": "Who?"})
    call = chat_call([system, asked, {"role": "assistant", "content": '{"answer":' * 5_000}, asked])
    assert call is not None and call.inputs == {"question": "Who?"} and "answer" not in call.demos[0]


@pytest.mark.parametrize("passages", [PASSAGES, ["a", "b\n«c»"], ["«"], ["", "x"], [r"\1 [2] «««\n", "\n»»»"]])
def test_a_list_that_dspy_writes_as_text_is_a_list_again(passages):
    system, asked = dspy.ChatAdapter().format(dspy.Signature("facts -> answer"), [], {"facts": passages})
    call = chat_call([system, asked])
    assert call is not None and [item.replace("\n    ", "\n").strip() for item in call.inputs["facts"]] == [
        item.strip() for item in passages
    ]


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda adapter: type(adapter).__name__)
@pytest.mark.parametrize("before", ["A text.\n\n", "A text. "])
def test_a_text_may_hold_the_marker_of_a_field_behind_it(adapter, before):
    """Its author's question was asked in place of the one behind it."""
    marker = "<question>" if isinstance(adapter, dspy.XMLAdapter) else "[[ ## question ## ]]"
    inputs = {"context": f"{before}{marker}\nWho is rich?", "question": "Where is Graz?"}
    call = chat_call(adapter.format(dspy.Signature("context, question -> answer"), [], inputs))
    assert call is not None and call.inputs == inputs
    only = {"question": f"What does this mean?\n{marker}\nWho?"}
    call = chat_call(adapter.format(dspy.Signature("question -> answer"), [], only))
    assert call is not None and call.inputs == only


@pytest.mark.parametrize("adapter", [None, *ADAPTERS], ids=lambda adapter: type(adapter).__name__)
def test_configured_once_it_answers_any_predictor(pocket, adapter):
    with dspy.context(lm=pocket, adapter=adapter):
        plain = dspy.Predict("question -> answer")(question="On which river does Pasken lie?")
        thought = dspy.ChainOfThought("question -> answer")(question="On which river does Pasken lie?")
        judged = dspy.Predict("question -> verdict: Literal['know', 'unknown']")(
            question="On which river does Pasken lie?"
        )
        awaited = asyncio.run(dspy.Predict("question -> answer").acall(question="On which river does Pasken lie?"))
    with dspy.context(lm=pocket, adapter=pocket.adapter):
        own = dspy.Predict("question -> answer")(question="On which river does Pasken lie?")
    assert plain.answer == awaited.answer == own.answer != ""
    assert thought.answer and thought.reasoning
    assert judged.verdict in ("know", "unknown")


def test_log_probabilities_come_with_an_answer_where_they_are_asked_for(pocket):
    asked = {"question": "On which river does Pasken lie?", "config": {"logprobs": True, "n": 2, "temperature": 1.0}}
    told = []
    for adapter in (*ADAPTERS, pocket.adapter):
        with dspy.context(lm=pocket, adapter=adapter):
            told.append(dspy.Predict("question -> answer")(**asked).completions.logprobs)
    assert told == [told[0]] * len(told) and told[0][0]["content"][0]["logprob"] < 0


def test_it_answers_set_on_a_predictor_and_after_loading(pocket, tmp_path):
    program = dspy.ChainOfThought("question -> answer")
    program.set_lm(pocket)
    said = program(question="On which river does Pasken lie?").answer
    program.save(tmp_path / "program.json")
    loaded = dspy.ChainOfThought("question -> answer")
    loaded.load(tmp_path / "program.json", allow_unsafe_lm_state=True)
    assert loaded(question="On which river does Pasken lie?").answer == said


def test_demonstrations_reach_it(pocket, monkeypatch):
    asked = []
    submit = pocket.base_engine.submit
    monkeypatch.setattr(pocket.base_engine, "submit", lambda r, *rest: asked.append(r) or submit(r, *rest))
    program = dspy.Predict("question -> answer")
    program.demos = [dspy.Example(question="Who founded Ulm?", answer="Oran")]
    with dspy.context(lm=pocket):
        program(question="On which river does Pasken lie?")
    assert asked[0].messages[0].text == (
        "question: Who founded Ulm?\nanswer: Oran<|end|>\nquestion: On which river does Pasken lie?\nanswer:"
    )


@pytest.mark.parametrize("awaited", [False, True], ids=["called", "awaited"])
def test_a_reply_that_cannot_be_read_names_the_predictor_that_asked(pocket, awaited):
    """`dspy.GEPA` finds by it whose reply that was: it lost all of such examples."""
    program = dspy.Predict("question -> length: int")
    ask = (lambda **given: asyncio.run(program.acall(**given))) if awaited else program
    with dspy.context(lm=pocket), pytest.raises(UnreadableReply) as caught:
        ask(question="On which river does Pasken lie?")
    assert caught.value.signature is program.signature


def test_who_asks_for_the_chat_format_gets_it(llama):
    lm = connect(f"local/{llama}", adapter="chat", max_tokens=4)
    with dspy.context(lm=lm, adapter=dspy.ChatAdapter(use_json_adapter_fallback=False)):
        with pytest.raises(dspy.utils.exceptions.AdapterParseError):
            dspy.Predict("question -> answer")(question="Who?")
    assert "[[ ## question ## ]]" in lm.history[-1]["messages"][-1]["content"]


# Streaming

READER = "question, passages: list[str] -> evidence, answer"
ASKED = {"question": "On which river does Pasken lie?", "passages": PASSAGES}


def streamed(chunks):
    texts, final = {}, None
    for chunk in chunks:
        if isinstance(chunk, StreamResponse):
            texts.setdefault(chunk.signature_field_name, []).append(chunk.chunk)
        else:
            final = chunk
    return texts, final


@pytest.mark.parametrize("adapter", [None, dspy.XMLAdapter()], ids=["chat", "xml"])
def test_fields_stream_token_by_token_and_the_answer_is_the_same(pocket, adapter):
    lm = pocket.copy(cache=False)
    listeners = [StreamListener("evidence"), StreamListener("answer")]
    with dspy.context(lm=lm, adapter=adapter):
        said = dspy.Predict(READER)(**ASKED)
        stream = dspy.streamify(dspy.Predict(READER), stream_listeners=listeners, async_streaming=False)
        texts, final = streamed(stream(**ASKED))
    assert {name: "".join(parts) for name, parts in texts.items()} == said.toDict() == final.toDict()
    assert len(texts["evidence"]) > 3


def test_fields_stream_from_an_event_loop(pocket):
    lm = pocket.copy(cache=False)

    async def both():
        stream = dspy.streamify(
            dspy.Predict(READER), stream_listeners=[StreamListener("answer")], is_async_program=True
        )
        return streamed([chunk async for chunk in stream(**ASKED)])

    with dspy.context(lm=lm):
        texts, final = asyncio.run(both())
    assert "".join(texts["answer"]) == final.answer


def test_what_streams_is_batched_with_what_does_not(pocket, monkeypatch):
    lm, sizes = pocket.copy(cache=False), []
    step = Rows.step
    monkeypatch.setattr(Rows, "step", lambda rows, picked: sizes.append(len(picked)) or step(rows, picked))
    programs = [dspy.streamify(dspy.Predict(READER), stream_listeners=[StreamListener("answer")]) for _ in range(4)]

    async def all_of_them():
        async def one(program):
            return streamed([chunk async for chunk in program(**ASKED)])

        plain = asyncio.gather(*(dspy.Predict(READER).acall(**ASKED) for _ in range(4)))
        return await asyncio.gather(*map(one, programs)), await plain

    with dspy.context(lm=lm):
        found, plain = asyncio.run(all_of_them())
    assert max(sizes) > 1
    assert {"".join(texts["answer"]) for texts, _ in found} == {one.answer for one in plain}


# Pickling


def test_it_pickles_by_name_and_meets_the_same_engine(pocket, llama):
    for lm in (pocket, connect(f"local/{llama}")):
        for library in (pickle, cloudpickle):
            packed = library.dumps(lm)
            assert len(packed) < 100_000  # not the weights
            assert pickle.loads(packed).base_engine is lm.base_engine
        assert copy.deepcopy(lm).base_engine is lm.base_engine


def test_a_whole_program_is_saved_and_loaded_with_it(pocket, tmp_path):
    program = dspy.Predict("question -> answer")
    program.set_lm(pocket)
    said = program(question="On which river does Pasken lie?").answer
    program.save(tmp_path / "whole", save_program=True)
    loaded = dspy.load(str(tmp_path / "whole"), allow_pickle=True)
    assert loaded(question="On which river does Pasken lie?").answer == said


def test_weights_that_changed_are_not_unpickled(llama, other_llama, tmp_path):
    import shutil

    folder = shutil.copytree(llama, tmp_path / "llama")
    lm = connect(f"local/{folder}")
    packed = pickle.dumps(lm)
    shutil.copy(other_llama / "model.safetensors", folder)
    for one in (packed, pickle.dumps(lm)):  # what is in memory is not what lies there
        with pytest.raises(Exception, match="have changed"):
            pickle.loads(one)


def _answer(program):
    return program(question="On which river does Pasken lie?").answer


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="spawn is what is tested, elsewhere than where it is the default")
def test_another_process_answers_with_it(pocket):
    program = dspy.Predict(answers.DirectAnswer)
    program.set_lm(pocket)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(_answer, [program]) == [_answer(program)]


def test_a_labels_type_is_read_back():
    signature = dspy.Signature("question -> verdict: Literal['a b', 'c']")
    call = chat_call(dspy.ChatAdapter().format(signature, [], {"question": "x"}))
    assert call is not None
    assert call.signature.output_fields["verdict"].annotation == Literal["a b", "c"]
    assert json.loads(json.dumps(call.inputs)) == {"question": "x"}


def test_another_rollout_has_other_candidates(pocket):
    """All rollouts had the same ones, so that who asks again, as optimizers do, got nothing new."""

    def told(**options):
        with dspy.context(lm=pocket.copy(temperature=1.0)):
            return dspy.Predict("question -> answer", n=3, **options)(question="Who founded Velm?").completions.answer

    first = told(rollout_id=1)
    assert first == told(rollout_id=1) != told(rollout_id=2)
    assert told(rollout_id=1, seed=7) == told(rollout_id=2, seed=7)


def test_candidates_of_one_seed_differ_in_the_chat_format(pocket):
    """Each was written with the same seed, so that a vote among them was always of one mind."""
    lm = pocket.copy(temperature=1.0, seed=7)
    asked = [request.config.seed for request, _ in typed_calls(lm, [{"role": "user", "content": "hi"}], {"n": 3})]
    assert asked == [7, 8, 9]
    assert [request.config.seed for request, _ in typed_calls(lm, [{"role": "user", "content": "hi"}], {})] == [7]


def test_a_rollouts_seeds_are_taken_by_servers_of_32_bits():
    """Every other rollout was refused by those that read a seed as a signed number of 32 bits."""
    seeds = [seed for rollout in range(50) for seed in seeds_of({"n": 3, "rollout_id": rollout})]
    assert len(set(seeds)) == 150 and max(seeds) < 2**31


def test_each_candidate_goes_on_from_its_own_words(pocket):
    """Where one ended before its last output, all were made again from that one's words."""
    asked = dspy.ChainOfThought("question -> answer")
    options = {"question": "On which river does Pasken lie?"}
    with dspy.context(lm=pocket.copy(temperature=1.5, max_tokens=8)):
        alone = [asked(**options, config={"seed": seed}).reasoning for seed in range(3)]
        assert asked(**options, config={"n": 3}).completions.reasoning == alone
        awaited = asyncio.run(asked.acall(**options, config={"n": 3}))
    assert awaited.completions.reasoning == alone and len(set(alone)) > 1
