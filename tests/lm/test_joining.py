"""Texts join a running batch and leave it: what each says is what it would say alone."""

import asyncio
import shutil
import time
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import MistralConfig, MistralForCausalLM

from raisf.lm.local import decoding, inference, jobs, shelf
from raisf.lm.local.clients import AsyncEngineClient, EngineClient
from raisf.lm.local.decoding import MAX_ROWS, Decoding, Draft, decode
from raisf.lm.local.engine import STEPS, InferenceEngine
from raisf.lm.local.inference import Rows
from raisf.lm.local.multi_lora import BASE, Loras
from raisf.lm.local.prefixes import BLOCK, SEEN, Prefix, Prefixes
from raisf.lm.local.shelf import Shelf
from raisf.lm.local.tails import Tails
from raisf.lm.transport import Stoppable, until
from tests.lm.conftest import Given, random_tokens, written
from tests.lm.test_engine import ask, judge


def drafts_for(model: Any, loras: Loras, slot: Any, seed: int) -> list[Given]:
    """Of all sorts: short and long, with an adapter or none, after a kept beginning or none."""
    rng = np.random.default_rng(seed)
    [head] = random_tokens(seed, 4 * BLOCK)
    kept = Prefixes(model, loras)
    prefixes = {lora: [kept.find([(lora, [*head, end])])[0] for end in range(5, 6 + SEEN)][-1] for lora in (BASE, slot)}
    drafts = []
    for rest in random_tokens(seed + 1, *rng.integers(1, 120, 14).tolist()):
        lora, after = (BASE, slot)[rng.integers(2)], rng.integers(3) == 0
        drafts.append(
            Given([*head, *rest] if after else rest, int(rng.integers(1, 30)), lora, prefixes[lora] if after else None)
        )
    return drafts


@pytest.mark.parametrize("seed", range(3))
def test_whoever_joins_and_leaves_says_what_he_says_alone(
    model: Any, loras: Loras, slot: Any, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shelf, "ROOM", 8)  # is laid out anew every few steps
    drafts, rng = drafts_for(model, loras, slot, seed), np.random.default_rng(seed)
    rows = Rows(model, loras)
    batch, waiting, ended = Decoding[Any](rows), deque(drafts), []
    while waiting or batch.drafts:
        coming = [waiting.popleft() for _ in range(min(len(waiting), int(rng.integers(4))))]
        ended += batch.join(coming) if coming else []
        ended += batch.step() if batch.drafts else []
        # Nobody drags columns along that none of the rows needs.
        cache = rows._cache
        assert cache is None or cache.get_seq_length() == max(len(d.prompt) + len(d.tokens) for d in batch.drafts) - 1
    assert {id(draft) for draft in ended} == {id(draft) for draft in drafts}
    for draft in drafts:
        [alone] = written(model, [draft.prompt], [draft.limit], None, loras, [draft.lora]).values()
        assert draft.tokens == alone
    assert rows._cache is None  # and nothing is held for nobody


@pytest.mark.parametrize("adapted", [False, True])
def test_a_prompt_that_grows_goes_on_from_what_was_read_and_written(
    model: Any, loras: Loras, slot: Any, adapted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ReAct's: each step's prompt is all that was there, and something new."""
    lora, tails = slot if adapted else BASE, Tails()
    prompt, others = random_tokens(30, 150)[0], random_tokens(31, 40, 160)
    rows = Rows(model, loras, tails)
    for step in range(3):
        drafts = [Given(each, 20, lora, tails.longest(lora, each, None)) for each in (prompt, others[step % 2])]
        known = len(drafts[0].prefix.tokens) if drafts[0].prefix else 0
        assert known == (0 if step == 0 else (len(prompt) - 6) // BLOCK * BLOCK)  # what was written too
        list(decode(rows, drafts))
        for draft in drafts:
            assert draft.tokens == next(iter(written(model, [draft.prompt], [20], None, loras, [lora]).values()))
        prompt = [*prompt, *drafts[0].tokens, *random_tokens(32 + step, 5)[0]]
    assert tails.longest(BASE if adapted else slot, prompt, None) is None  # another adapter has read other things
    known = Prefix(prompt[:-1], lora, tails.longest(lora, prompt, None)._cache)  # type: ignore[union-attr]
    assert tails.longest(lora, prompt, known) is known
    parted = tails.longest(lora, [*prompt[:130], *random_tokens(35, 40)[0]], None)
    assert parted is not None and parted.tokens == prompt[:128]  # whole blocks, and none that this prompt lacks
    monkeypatch.setattr("raisf.lm.local.tails.TEXTS", 2)
    for length in (100, 110, 120):
        list(decode(rows, [Given(random_tokens(40 + length, length)[0], 2, lora)]))
    assert len(tails._kept) == 2 and tails.longest(lora, prompt, None) is None
    assert tails._bytes == sum(tail.nbytes for tail in tails._kept.values())
    assert set(tails._of.values()) == set(tails._kept)


def test_a_step_copies_no_keys(model: Any) -> None:
    rows = Rows(model)
    rows.join([Given(prompt, 9) for prompt in random_tokens(7, 20, 9)])
    layer: Any = rows._cache.layers[0]
    assert isinstance(layer, Shelf)
    rows.step([3, 4])  # makes room
    place = layer.keys.data_ptr()
    for _ in range(20):
        rows.step([3, 4])
    assert (layer.keys.data_ptr(), layer.keys.shape[-2]) == (place, 41)


def test_a_model_that_forgets_lets_nobody_join_and_says_the_same() -> None:
    shape: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    config = MistralConfig(vocab_size=400, sliding_window=16, num_attention_heads=4, num_key_value_heads=4, **shape)
    model = MistralForCausalLM(config).eval()
    prompts = random_tokens(8, 30, 12, 40)
    found = written(model, prompts, [20, 6, 9])
    for row, limit in enumerate([20, 6, 9]):
        assert found[row] == written(model, [prompts[row]], [limit])[0]
    batch = Decoding(Rows(model))
    batch.join([Given(prompts[0], 9)])
    waiting: deque[Draft] = deque([Given(prompts[1], 9)])
    assert batch.admitted(waiting, "cpu") == [] and len(waiting) == 1


def test_there_is_room_for_so_many_and_nobody_overtakes(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def coming(*lengths: int) -> deque[Draft]:
        return deque(Given([5] * length, 10) for length in lengths)

    waiting = coming(*[20] * (MAX_ROWS + 3))
    assert len(Decoding(Rows(model)).admitted(waiting, "cpu")) == MAX_ROWS and len(waiting) == 3
    monkeypatch.setitem(decoding.MAX_PLACES, "cpu", 299)
    waiting = coming(20, 90, 20)
    assert [len(draft.prompt) for draft in Decoding(Rows(model)).admitted(waiting, "cpu")] == [20, 90]
    batch = Decoding(Rows(model))
    batch.join([Given([5] * 90, 10)])
    waiting = coming(20, 200, 20)
    assert [len(draft.prompt) for draft in batch.admitted(waiting, "cpu")] == [20]
    assert len(Decoding(Rows(model)).admitted(coming(2000), "cpu")) == 1  # alone there is always room


@pytest.mark.parametrize("request_of", [judge, lambda text: ask(text, max_tokens=3)], ids=["judgement", "text"])
def test_a_long_text_keeps_nobody_waiting(llama: Path, request_of: Any) -> None:
    engine, order, late = InferenceEngine(llama), [], []

    def listen(text: str) -> None:
        if not late:
            late.append(engine.submit(request_of("question: Who?\nverdict:")))
            late[0].add_done_callback(lambda _: order.append("late"))

    long = engine.submit(ask("question:", max_tokens=20 * STEPS), listen=listen)
    long.add_done_callback(lambda _: order.append("long"))
    assert long.result().usage.output_tokens > 3 * STEPS
    late[0].result()
    assert order == ["late", "long"]


def test_what_fails_in_a_step_reaches_all_and_the_engine_goes_on(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = InferenceEngine(llama)
    expected = engine.complete(ask("q")).text

    def broken(*_: Any) -> None:
        raise RuntimeError("out of memory")

    with monkeypatch.context() as patched:
        patched.setattr(Rows, "step", broken)
        futures = [engine.submit(ask("q")) for _ in range(3)]
        for future in futures:
            with pytest.raises(RuntimeError, match="out of memory"):
                future.result()
    assert engine.complete(ask("q")).text == expected


def make_mistral(folder: Path, llama: Path) -> Path:
    """It forgets, by a sliding window."""
    shape: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    config = MistralConfig(vocab_size=400, sliding_window=16, num_attention_heads=4, num_key_value_heads=4, **shape)
    MistralForCausalLM(config).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(llama / name, folder)
    return folder


@pytest.mark.parametrize("kind", ["t5", "mistral"])
def test_prompts_too_many_to_be_read_at_once_wait_where_nobody_may_join(
    llama: Path, t5: Path, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = t5 if kind == "t5" else make_mistral(tmp_path, llama)
    requests = [ask(f"question: {chr(97 + at) * 40}", max_tokens=4 + at) for at in range(6)]
    engine = InferenceEngine(folder)
    alone = [engine.complete(request).text for request in requests]
    monkeypatch.setitem(jobs.MAX_TOKENS, "cpu", (320, 90))  # two at a time
    futures = [engine.submit(request) for request in requests]
    assert [future.result().text for future in futures] == alone


def other_answers_stand(engine: InferenceEngine, spoil: Any) -> Exception:
    """What a bad request ends with, while another is written beside it and a third comes later."""
    expected = engine.complete(ask("question:", max_tokens=20)).text
    good = engine.submit(ask("question:", max_tokens=20))
    bad = spoil(engine)
    late = engine.submit(ask("question:", max_tokens=20))
    assert (good.result().text, late.result().text) == (expected, expected)
    with pytest.raises(Exception) as raised:
        bad.result()
    assert engine.complete(ask("question:", max_tokens=20)).text == expected
    return raised.value


def test_who_listens_badly_fails_alone(llama: Path) -> None:
    def listen(text: str) -> None:
        raise ValueError("the loop is closed")

    error = other_answers_stand(InferenceEngine(llama), lambda e: e.submit(ask("q", max_tokens=20), listen=listen))
    assert str(error) == "the loop is closed"


def test_a_prompt_that_cannot_be_read_leaves_the_others_theirs(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    join = Rows.join

    def reads(rows: Rows, drafts: Any) -> Any:
        if any(len(draft.prompt) > 100 for draft in drafts):
            raise RuntimeError("out of memory")
        return join(rows, drafts)

    monkeypatch.setattr(Rows, "join", reads)
    monkeypatch.setitem(jobs.MAX_TOKENS, "cpu", (320, 1))  # each is read by itself
    other_answers_stand(InferenceEngine(llama), lambda e: e.submit(ask("x" * 200)))


def test_a_judgement_that_fails_fails_alone(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = InferenceEngine(llama)
    expected, score = engine.complete(judge("q")), inference.score

    def scores(model: Any, sequences: Any, *rest: Any) -> list[float]:
        bad = [len(tokens) > 100 for tokens in sequences]
        return [
            float("nan") if spoilt else found for spoilt, found in zip(bad, score(model, sequences, *rest), strict=True)
        ]

    monkeypatch.setattr(inference, "score", scores)
    good, *bad = [engine.submit(judge(text)) for text in ("q", "a" * 200, "x" * 200)]  # one of them is the first
    for future in bad:
        with pytest.raises(ValueError, match="must be in"):
            future.result()
    assert good.result().message == expected.message


@pytest.mark.parametrize("options", [{"seed": 2**70}, {"seed": -(2**70)}, {"temperature": 1e-300}], ids=str)
def test_odd_ways_to_sample_are_answered(llama: Path, options: Any) -> None:
    engine = InferenceEngine(llama)
    futures = [engine.submit(ask("question:", **{"temperature": 1.0, **each})) for each in ({}, options, {})]
    assert all(future.result().text is not None for future in futures)


def test_who_leaves_is_written_no_further(llama: Path) -> None:
    engine, heard = InferenceEngine(llama), []
    stream = EngineClient(engine).stream(ask("question:", max_tokens=400))
    next(stream), next(stream)
    stream.close()
    gone = engine.submit(ask("question:", max_tokens=400), listen=heard.append)
    gone.add_done_callback(lambda _: None)
    while not heard:
        time.sleep(0.001)
    assert gone.cancel()
    engine.complete(ask("q"))  # by now it has left
    said = len(heard)
    engine.complete(ask("q", max_tokens=20))
    assert said == len(heard) < 400


def test_a_question_that_is_stopped_is_written_no_further(llama: Path) -> None:
    engine, question = InferenceEngine(llama), Stoppable()
    with until(None, question):
        futures = [engine.submit(ask("question:", max_tokens=400)) for _ in range(40)]  # more than there are rows
    other = engine.submit(ask("question:"))
    question.stop()
    assert other.result().text == engine.complete(ask("question:")).text
    assert all(future.cancelled() for future in futures)


def test_a_coroutine_that_is_cancelled_is_written_no_further(llama: Path) -> None:
    engine, left = InferenceEngine(llama), []

    async def leave() -> None:
        task = asyncio.create_task(AsyncEngineClient(EngineClient(engine)).complete(ask("question:", max_tokens=400)))
        while not (engine._worker and submitted):
            await asyncio.sleep(0.001)
        submitted[0].add_done_callback(lambda future: left.append(future.cancelled()))
        task.cancel()
        await asyncio.wait([task])

    submitted: list[Any] = []
    submit = engine.submit
    engine.submit = lambda *given: submitted.append(submit(*given)) or submitted[-1]  # type: ignore[method-assign]
    asyncio.run(leave())
    assert left == [True]
    assert engine.complete(ask("q")).text is not None
