"""One engine serves every thread of a program: what it says may depend on nothing but the request."""

import asyncio
import copy
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from dspy.lm15 import (
    Config,
    ContextLengthError,
    InvalidRequestError,
    Message,
    Request,
    UnsupportedFeatureError,
    choice,
    judgments,
)
from tokenizers import Tokenizer, decoders
from tokenizers.models import BPE
from transformers import LlamaConfig, Phi3Config, Phi3ForCausalLM, PreTrainedTokenizerFast

from raisf.lm.adapter import COMPLETION
from raisf.lm.local import engine as engine_module
from raisf.lm.local import inference
from raisf.lm.local.clients import AsyncEngineClient, EngineClient
from raisf.lm.local.engine import InferenceEngine, engine_for
from raisf.lm.local.jobs import Job
from raisf.lm.local.prefixes import SEEN
from raisf.lm.local.tokenization import Text
from raisf.lm.local.writing import Answer
from tests.lm.conftest import probabilities


@pytest.fixture(scope="module")
def engine(llama):
    return InferenceEngine(llama)


def ask(text, **config):
    options = {"max_tokens": 8, "temperature": 0.0, "extensions": COMPLETION, **config}
    return Request(model="local/tiny", messages=(Message.user(text),), config=Config(**options))


def judge(text, labels=("know", "unknown")):
    schema = judgments(verdict=choice("", labels))
    return ask(text, response_format=schema, probabilities="required")


QUESTIONS = [
    f"question: Who founded {name}?\nverdict:" for name in ("Velmora", "A", "the town of Kastrel and " * 9, "")
]


@pytest.mark.parametrize("labels", [("know", "unknown"), ("no", "perhaps so")])
def test_a_verdicts_probability_is_that_of_its_whole_label(engine, labels):
    for text in QUESTIONS:
        expected = []
        for label in labels:
            tokens = engine.text.encode(f"{text} {label}", True)
            prompt = engine.text.encode(text, True)
            assert tokens[: len(prompt)] == prompt
            with torch.inference_mode():
                logprobs = engine.model(torch.tensor([tokens])).logits[0].log_softmax(-1)
            expected.append(sum(float(logprobs[i - 1, tokens[i]]) for i in range(len(prompt), len(tokens))))
        first = probabilities(engine.complete(judge(text, labels)))[labels[0]]
        assert first == pytest.approx(float(torch.tensor(expected).softmax(0)[0]), abs=1e-5)


@pytest.mark.parametrize(("stop", "end"), [(("\n",), "\n"), ((), "<|end|>")])
def test_a_label_that_begins_another_is_read_to_its_end(engine, stop, end):
    """Without its end the shorter would always be at least as likely as the longer."""
    labels, text = ("know", "know it"), QUESTIONS[0]
    prompt, expected = engine.text.encode(text, True), []
    for label in labels:
        tokens = engine.text.encode(f"{text} {label}{end}", True)
        with torch.inference_mode():
            logprobs = engine.model(torch.tensor([tokens])).logits[0].log_softmax(-1)
        expected.append(sum(float(logprobs[i - 1, tokens[i]]) for i in range(len(prompt), len(tokens))))
    asked = judge(text, labels)
    asked = replace(asked, config=replace(asked.config, stop=stop))
    found = probabilities(engine.complete(asked))
    assert found["know"] == pytest.approx(float(torch.tensor(expected).softmax(0)[0]), abs=1e-5)


def test_sixteen_threads_get_what_each_would_get_alone(engine):
    requests = [build(f"{text} {i}") for i in range(8) for text in QUESTIONS for build in (judge, ask)]
    alone = [engine.complete(request) for request in requests]
    with ThreadPoolExecutor(16) as pool:
        together = list(pool.map(engine.complete, requests))
    for one, other in zip(alone, together, strict=True):
        assert one.text == other.text
        assert one.usage == other.usage
        if one.text is None:
            assert probabilities(one) == pytest.approx(probabilities(other), abs=1e-4)


def test_examples_are_read_once_and_change_no_answer(llama, monkeypatch):
    read, examples = [], "question: Who founded Velmora?\nverdict: know\n\n" * 9
    score = inference.score
    monkeypatch.setattr(inference, "score", lambda *given: read.append(given[-1]) or score(*given))
    engine, requests = InferenceEngine(llama), [judge(f"{examples}{text}") for text in [*QUESTIONS, "a", "b"]]
    found = [probabilities(engine.complete(request)) for request in requests]
    assert [prefixes[0] is not None for prefixes in read] == [False] * SEEN + [True, True]
    for request, one in zip(requests, found, strict=True):
        assert probabilities(InferenceEngine(llama).complete(request)) == pytest.approx(one, abs=1e-5)
    texts = [ask(f"{examples}question: Who founded {name}?\nverdict:") for name in "ABC"]
    assert [engine.complete(text).text for text in texts] == [
        InferenceEngine(llama).complete(text).text for text in texts
    ]


def test_async_calls_get_the_same(engine):
    async def gather():
        return await asyncio.gather(
            *(AsyncEngineClient(EngineClient(engine)).complete(ask(text)) for text in QUESTIONS)
        )

    assert [r.text for r in asyncio.run(gather())] == [engine.complete(ask(text)).text for text in QUESTIONS]


def test_a_text_ends_before_its_stop_string(engine):
    whole = engine.complete(ask(QUESTIONS[0], max_tokens=20))
    assert (whole.finish_reason, whole.usage.output_tokens) == ("length", 20)
    stop = whole.text[5:8]
    cut = engine.complete(ask(QUESTIONS[0], max_tokens=20, stop=(stop,)))
    assert cut.text == whole.text.split(stop)[0]
    assert cut.finish_reason == "stop"
    assert cut.usage.output_tokens < 20


def test_a_narrow_nucleus_is_greedy_and_a_wide_one_is_not(engine):
    """The papers sample answers by top_p."""
    greedy = engine.complete(ask(QUESTIONS[0])).text
    narrow = {engine.complete(ask(QUESTIONS[0], temperature=1.0, top_p=1e-6, seed=s)).text for s in range(4)}
    wide = {engine.complete(ask(QUESTIONS[0], temperature=1.0, top_p=1.0, seed=s)).text for s in range(4)}
    assert narrow == {greedy} and len(wide) > 1


def test_a_seed_repeats_a_sample_and_other_seeds_differ(engine):
    texts = [engine.complete(ask(QUESTIONS[0], temperature=1.0, seed=seed)).text for seed in (1, 1, 2, 3)]
    assert texts[0] == texts[1]
    assert len(set(texts)) > 1
    assert engine.complete(ask(QUESTIONS[0], temperature=1.0)).text is not None


@pytest.mark.parametrize("text", ["", " ", "🎉 ünïcödé \u202e\x00", "<|begin|><|end|>", "\n" * 50])
def test_odd_text_is_answered(engine, text):
    assert engine.complete(ask(text)).text is not None
    assert sum(probabilities(engine.complete(judge(text))).values()) == pytest.approx(1)


def test_a_prompt_beyond_the_context_is_refused_with_its_length(engine):
    for request in (ask("x" * 100_000), judge("x" * 100_000)):
        with pytest.raises(ContextLengthError, match=r"100,00\d tokens long and the model reads 512 at most\n"):
            engine.complete(request)
    assert engine.complete(ask("short")).text is not None


def test_a_text_ends_where_the_context_does(engine):
    response = engine.complete(ask("x" * 505, max_tokens=100))
    assert response.usage.input_tokens + response.usage.output_tokens <= 512


def test_a_prompt_that_leaves_no_room_for_a_token_is_refused(engine):
    before = engine.complete(ask("x" * 400, max_tokens=1)).usage.input_tokens - 400
    assert engine.complete(ask("x" * (511 - before), max_tokens=9)).usage.output_tokens == 1
    with pytest.raises(ContextLengthError, match="the prompt is 513 tokens long"):
        engine.complete(ask("x" * (512 - before), max_tokens=9))


def test_a_long_text_changes_nothing_that_is_said_to_short_ones_beside_it(llama, tmp_path):
    """Phi-3 turns the positions of a whole batch otherwise where one of its texts is long."""
    folder = shutil.copytree(llama, tmp_path / "phi")
    torch.manual_seed(0)
    turned = {"rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [8.0] * 4}
    config = Phi3Config(
        vocab_size=LlamaConfig.from_pretrained(llama).vocab_size,
        **{"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4},
        **{"max_position_embeddings": 2048, "original_max_position_embeddings": 128, "pad_token_id": 0},
        rope_parameters={**turned, "rope_theta": 10000.0, "original_max_position_embeddings": 128},
    )
    Phi3ForCausalLM(config).save_pretrained(folder)
    engine = InferenceEngine(folder)
    short = [judge(f"question: Who is {n}?\nverdict:") for n in range(6)]
    alone = [probabilities(engine.complete(asked))["know"] for asked in short]
    long = judge("word " * 200)
    with ThreadPoolExecutor(7) as pool:
        refused, *beside = [pool.submit(engine.complete, asked) for asked in (long, *short)]
    assert [probabilities(one.result())["know"] for one in beside] == pytest.approx(alone, abs=1e-5)
    with pytest.raises(ContextLengthError, match="128"):
        refused.result()


def test_options_that_would_be_ignored_are_refused(engine):
    for request in (
        ask("q", top_k=5),
        ask("q", logprobs=3),
        ask("q", response_format=judgments(verdict=choice("", ["a"]))),
        ask("q", response_format={"type": "json_object"}, probabilities="required"),
    ):
        with pytest.raises(UnsupportedFeatureError, match="local LM"):
            engine.complete(request)


def test_an_error_in_a_batch_reaches_its_callers_and_the_engine_goes_on(llama, monkeypatch):
    engine = InferenceEngine(llama)

    def broken(*args, **kwargs):
        raise RuntimeError("out of memory")

    with monkeypatch.context() as patched:
        patched.setattr("raisf.lm.local.inference.score", broken)
        with pytest.raises(RuntimeError, match="out of memory"):
            engine.complete(judge("q"))
    assert sum(probabilities(engine.complete(judge("q"))).values()) == pytest.approx(1)


def test_chat_messages_go_through_the_models_template(engine):
    request = Request(model="m", messages=(Message.user("b"),), system="a", config=Config(max_tokens=2))
    assert engine.text.of(request) == ("<|begin|>ab", False)


def test_a_template_that_refuses_the_messages_says_so(llama):
    engine = InferenceEngine(llama)
    engine.text.tokenizer.chat_template = "{{ raise_exception('no system role') }}"
    with pytest.raises(InvalidRequestError, match="no system role"):
        engine.complete(ask("q", extensions=None))


def test_a_reply_ends_where_the_template_ends_a_turn_also_where_the_model_names_another_end(makers, tmp_path):
    """A Gemma or a Phi out of a GGUF file names the end of a text alone, and would go on as the user."""
    folder = makers.make_llama(tmp_path / "chat", more=["<|turn|>"], louder=4.0)
    turns = "{% for one in messages %}{{ one.role }} {{ one.content }}<|turn|>\n{% endfor %}"
    (folder / "chat_template.jinja").write_text(turns + "{% if add_generation_prompt %}assistant {% endif %}")
    engine = InferenceEngine(folder)
    asked = [ask(question, extensions=None, max_tokens=30, logprobs=0) for question in ("who?", "what?", "when?")]
    written = [[one.token for one in engine.complete(request).logprobs] for request in asked]
    assert any("<|turn|>" in tokens for tokens in written)
    assert not any("<|turn|>" in tokens[:-1] for tokens in written)


def test_several_models_can_be_read_at_once(llama):
    engines = [InferenceEngine(llama) for _ in range(3)]
    with ThreadPoolExecutor(9) as pool:
        texts = list(pool.map(lambda engine: engine.complete(ask(QUESTIONS[0])).text, engines * 3))
    assert texts == [texts[0]] * 9


@pytest.mark.slow
def test_a_process_ends_well_while_an_answer_is_under_way(llama):
    program = (
        "import sys; from pathlib import Path\n"
        "from raisf.lm.local.engine import InferenceEngine\n"
        "from tests.lm.test_engine import ask\n"
        "engine = InferenceEngine(Path(sys.argv[1]))\n"
        "[engine.submit(ask(f'question {i}', max_tokens=400)) for i in range(40)]"
    )
    root = Path(__file__).parents[2]
    ended = subprocess.run([sys.executable, "-c", program, str(llama)], cwd=root, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


def test_weights_are_in_memory_once(llama):
    engine = engine_for(llama, "a")
    assert engine_for(llama / "..", "a") is not engine
    assert engine_for(llama / ".." / llama.name, "a") is engine
    assert engine_for(llama, "b") is not engine  # what was trained anew in the same folder
    assert copy.deepcopy(engine) is engine


@pytest.mark.slow
def test_an_engine_that_waits_for_company_never_waits_for_ever(llama, monkeypatch):
    # A machine that is busy for a millisecond at the wrong moment stopped every question of the process for good. With
    # a moment this short nearly any moment is the wrong one.
    monkeypatch.setattr(engine_module, "QUIET_SECONDS", 1e-9)
    engine, job = InferenceEngine(llama), Job(ask("?"), [])

    def work():
        for _ in range(30_000):
            engine._queue.put(job)
            assert engine._arrived(wait=True) == [job]

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    worker.join(30)
    assert not worker.is_alive()


def test_a_space_stops_a_text_though_the_tokenizer_drops_the_first_one():
    """Llama 2's and Mistral's do: the text went on to its limit, and counted as cut off."""
    library = Tokenizer(BPE(vocab={"a": 0, "\u2581b": 1}, merges=[]))
    library.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    request = Request(model="x", messages=(Message.user("a"),), config=Config(stop=(" ",)))
    answer = Answer(Job(request, [0], limit=9), Text(PreTrainedTokenizerFast(tokenizer_object=library)), set())
    answer.tokens = [0]
    assert not answer.ended()
    answer.tokens = [0, 1]
    assert answer.ended() and answer.finished and answer.written == "a"
