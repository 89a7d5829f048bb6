"""A kept beginning saves time and nothing else: what comes after it must be what the model says without it."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

from raisf.lm.local import prefixes
from raisf.lm.local.inference import score
from raisf.lm.local.jobs import readings
from raisf.lm.local.multi_lora import BASE, Loras, Slot
from raisf.lm.local.prefixes import BLOCK, SEEN, SHORTEST, Prefixes
from tests.lm.conftest import Given, random_tokens, written

SHAPE: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}


def asked(kept: Prefixes, prompts: list[list[int]], lora: Slot = BASE) -> list[Any]:
    """What is found when each prompt is a batch of its own."""
    return [kept.find([(lora, prompt)])[0] for prompt in prompts]


@pytest.fixture(params=[True, False], ids=["adapter", "base"])
def head(request: pytest.FixtureRequest, model: Any, loras: Loras, slot: Slot) -> Any:
    """A kept beginning."""
    [tokens] = random_tokens(0, 4 * BLOCK)
    kept = Prefixes(model, loras)
    return asked(kept, [[*tokens, end] for end in range(5, 6 + SEEN)], slot if request.param else BASE)[-1]


def test_scores_after_a_kept_beginning_are_those_without_it(model: Any, loras: Loras, head: Any) -> None:
    prompts, labels = random_tokens(1, 5, 17, 1, 40), random_tokens(2, 1, 3)
    sequences = [head.tokens + prompt + label for prompt in prompts for label in labels]
    starts = [len(head.tokens) + len(prompt) for prompt in prompts for _ in labels]
    slots = [head.lora] * len(sequences)
    for _ in range(2):  # the second time too: scoring must not grow what is kept
        found = score(model, sequences, starts, slots, loras, [head] * len(sequences))
        assert found == pytest.approx(score(model, sequences, starts, slots, loras), abs=1e-4)


def test_texts_after_a_kept_beginning_are_those_without_it(model: Any, loras: Loras, head: Any) -> None:
    prompts = [head.tokens + prompt for prompt in random_tokens(3, 4, 19, 7, 7)]

    def texts(prefix: Any) -> dict[int, list[int]]:
        return written(model, prompts, [9, 3, 9, 6], 2, loras, [head.lora] * 4, [prefix] * 4)

    assert texts(head) == texts(head) == texts(None)


def test_a_beginning_is_kept_once_enough_batches_had_it(model: Any, loras: Loras) -> None:
    [examples] = random_tokens(4, SHORTEST + 5)
    ends = random_tokens(5, *[20] * (SEEN + 2))
    found = asked(Prefixes(model, loras), [examples + end for end in ends])
    assert found[:SEEN] == [None] * SEEN
    assert found[SEEN].tokens == examples[:SHORTEST]
    assert found[SEEN + 1] is found[SEEN]


def test_what_one_batch_alone_shares_is_not_kept(model: Any, loras: Loras) -> None:
    [question] = random_tokens(6, 2 * SHORTEST)
    passages = random_tokens(7, *[20] * 5)
    kept = Prefixes(model, loras)
    assert kept.find([(BASE, question + passage) for passage in passages]) == [None] * 5


def test_adapters_share_no_beginning(model: Any, loras: Loras, slot: Slot) -> None:
    [examples] = random_tokens(8, SHORTEST + 5)
    prompts = [examples + end for end in random_tokens(9, *[20] * (SEEN + 1))]
    kept = Prefixes(model, loras)
    of_base = asked(kept, prompts)[-1]
    assert asked(kept, prompts[:SEEN], slot) == [None] * SEEN
    of_adapter = asked(kept, prompts, slot)[-1]
    assert (of_base.lora, of_adapter.lora) == (BASE, slot)
    assert not torch.equal(of_base.continued().layers[1].keys, of_adapter.continued().layers[1].keys)


def test_a_longer_beginning_grows_from_a_shorter_one(model: Any, loras: Loras) -> None:
    [examples] = random_tokens(10, 8 * BLOCK)
    kept = Prefixes(model, loras)
    short = asked(kept, [examples[: 4 * BLOCK] + end for end in random_tokens(11, *[9] * (SEEN + 1))])[-1]
    long = asked(kept, [examples + end for end in random_tokens(12, *[9] * (SEEN + 1))])[-1]
    assert (len(short.tokens), len(long.tokens)) == (4 * BLOCK, 8 * BLOCK)
    whole = asked(Prefixes(model, loras), [examples + end for end in random_tokens(12, *[9] * (SEEN + 1))])[-1]
    for one, other in zip(long.continued().layers, whole.continued().layers, strict=True):
        torch.testing.assert_close(one.keys, other.keys, atol=1e-5, rtol=1e-4)


def test_the_longest_unused_goes_when_memory_is_short(
    model: Any, loras: Loras, monkeypatch: pytest.MonkeyPatch
) -> None:
    heads = random_tokens(13, *[SHORTEST] * 3)
    kept = Prefixes(model, loras)
    first = asked(kept, [[*heads[0], end] for end in range(3, 4 + SEEN)])[-1]
    monkeypatch.setattr(prefixes, "BYTES", 2 * first.nbytes)
    asked(kept, [[*heads[1], end] for end in range(3, 4 + SEEN)])
    assert kept.find([(BASE, [*heads[0], 9])]) == [first]
    asked(kept, [[*heads[2], end] for end in range(3, 4 + SEEN)])
    assert kept.find([(BASE, [*heads[0], 9])]) == [first]
    before = kept.find([(BASE, [*heads[1], 9])])[0]
    assert before is not None and before.nbytes == first.nbytes  # made anew


def test_a_model_that_forgets_keeps_nothing() -> None:
    model = MistralForCausalLM(MistralConfig(vocab_size=400, sliding_window=16, num_key_value_heads=4, **SHAPE)).eval()
    prompts = [[*random_tokens(14, SHORTEST)[0], end] for end in range(3, 5 + SEEN)]
    assert asked(Prefixes(model, Loras(model)), prompts) == [None] * (SEEN + 2)


@settings(deadline=None)  # on a busy machine a forward pass takes any time
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 200)), min_size=1, max_size=12))
def test_what_is_found_begins_the_prompt_and_leaves_something(prompts: list[tuple[int, int]]) -> None:
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=400, **SHAPE)).eval()
    kept, heads = Prefixes(model, Loras(model)), random_tokens(15, *[150] * 4)
    for head, length in prompts:
        prompt = [1, *heads[head], *heads[0]][: length + 1]
        (found,) = kept.find([(BASE, prompt)])
        assert found is None or (found.tokens == prompt[: len(found.tokens)] and len(found.tokens) < len(prompt))


def test_a_prompt_that_comes_again_and_again_is_no_prefix(model: Any, loras: Loras) -> None:
    prompts = random_tokens(20, *[2 * SHORTEST] * 3)
    kept = Prefixes(model, loras)
    for _ in range(3 * SEEN):
        assert kept.find([(BASE, prompt) for prompt in prompts]) == [None] * 3


def passes(kept: Prefixes, prompts: list[list[int]], times: int, at_once: int) -> list[list[int]]:
    """The sizes of all decoding batches of each pass over the same prompts, so many at a time."""
    sizes = []
    for _ in range(times):
        found = []
        for start in range(0, len(prompts), at_once):
            together = prompts[start:][:at_once]
            drafts = [
                Given(prompt, 9, BASE, prefix)
                for prompt, prefix in zip(together, kept.find([(BASE, prompt) for prompt in together]), strict=True)
            ]
            found += [len(batch) for batch in readings(drafts, "cpu")]
        sizes.append(found)
    return sizes


def test_no_cached_prefix_makes_a_batch_smaller(model: Any, loras: Loras) -> None:
    """The same questions asked four times over, and questions whose prompts grow, as IRCoT's do."""
    same = random_tokens(21, *[140] * 24)
    assert passes(Prefixes(model, loras), same, 4, 8) == [[8, 8, 8]] * 4
    grown = [tokens[:length] for length in (100, 120, 140) for tokens in same[:8]]
    assert passes(Prefixes(model, loras), grown, 4, 8) == [[8, 8, 8]] * 4
    [examples] = random_tokens(22, 4 * BLOCK)
    mixed = [tokens for pair in zip([examples + end[:20] for end in same], same, strict=True) for tokens in pair]
    kept = Prefixes(model, loras)
    assert passes(kept, mixed, 4, 8) == [[8] * 6] * 4
    assert kept.find([(BASE, [*examples, 9])])[0] is not None  # and yet the examples are read once


def test_one_batch_continues_several_prefixes_adapters_and_none(model: Any, loras: Loras, slot: Slot) -> None:
    heads = random_tokens(23, SHORTEST, 4 * BLOCK)
    kept = Prefixes(model, loras)
    owners = [BASE, slot, slot, BASE, BASE]
    found = [
        asked(kept, [[*heads[n], end] for end in range(5, 6 + SEEN)], lora)[-1] for n, lora in ((0, BASE), (1, slot))
    ]
    prefixes: list[Any] = [found[0], found[1], found[1], None, found[0]]
    prompts = [
        [*(prefix.tokens if prefix else []), *rest]
        for prefix, rest in zip(prefixes, random_tokens(24, 7, 3, 30, 50, 1), strict=True)
    ]
    sequences, starts = [[*prompt, 9, 8] for prompt in prompts], [len(prompt) for prompt in prompts]
    scores = score(model, sequences, starts, owners, loras, prefixes)
    assert scores == pytest.approx(score(model, sequences, starts, owners, loras), abs=1e-4)

    def texts(prefixes: Any) -> dict[int, list[int]]:
        return written(model, prompts, [9, 3, 9, 6, 9], None, loras, owners, prefixes)

    assert texts(prefixes) == texts(None)
