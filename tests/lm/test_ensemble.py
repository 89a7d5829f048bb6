"""An ensemble's tokens must be the likeliest of the mean that its prompts give, whatever else the engine is doing."""

import dspy
import pytest
import torch

from raisf.lm.local import ensemble
from raisf.lm.local.ensemble import answer_together, mix
from raisf.lm.local.model import LocalLM
from raisf.signatures.answers import GroundedAnswer
from raisf.utils.errors import InputError, LMError
from tests.lm.conftest import random_tokens
from tests.scripted import ScriptedLM


def mean_by_hand(model, prompts, weights, new):
    """The mean probabilities of the next token: each prompt in a plain forward pass of its own."""
    with torch.inference_mode():
        each = [model(torch.tensor([prompt + new])).logits[0, -1].softmax(-1) for prompt in prompts]
    return sum(weight * probabilities for weight, probabilities in zip(weights, each, strict=True))


def never(tokens):
    return False


def test_each_token_is_the_likeliest_of_the_weighted_mean(model):
    prompts, weights = random_tokens(0, 9, 30, 2), [0.5, 0.3, 0.2]
    new = mix(model, prompts, weights, 8, never)
    for place, token in enumerate(new):
        mean = mean_by_hand(model, prompts, weights, new[:place])
        assert mean[token] == pytest.approx(float(mean.max()), abs=1e-5)
    alone = [mix(model, [prompt], [1.0], 8, never) for prompt in prompts]
    assert any(new != one for one in alone)  # else any one of them would have passed


def test_a_prompt_with_all_the_weight_decides_alone(model):
    prompts = random_tokens(1, 12, 25)
    assert mix(model, prompts, [0.0, 1.0], 8, never) == mix(model, prompts[1:], [1.0], 8, never)


def test_it_ends_at_its_limit_or_its_end(model):
    prompts = random_tokens(2, 5, 6)
    assert len(mix(model, prompts, [0.5, 0.5], 5, never)) == 5
    assert len(mix(model, prompts, [0.5, 0.5], 5, lambda tokens: len(tokens) == 3)) == 3


CALLS = [
    {"question": "Who founded Velmora?", "passages": [passage]}
    for passage in ("Velmora | Velmora was founded by Kastrel.", "Velmora | Nobody knows.")
]


def test_a_single_prompt_gets_the_engines_own_answer():
    lm = LocalLM("local/pocket", cache=False)
    mixed = answer_together(lm, GroundedAnswer, [], CALLS[:1], [1.0])
    fields = lm.adapter.parse(GroundedAnswer, mixed.text)
    with dspy.context(lm=lm, adapter=lm.adapter, track_usage=True):
        alone = dspy.Predict(GroundedAnswer)(**CALLS[0])
    assert fields == {"evidence": alone.evidence, "answer": alone.answer}
    usage = alone.get_lm_usage()[lm.model]
    assert (mixed.prompt_tokens, mixed.completion_tokens) == (usage["prompt_tokens"], usage["completion_tokens"])


def test_an_end_that_takes_several_tokens_ends_it(llama, monkeypatch):
    """It wrote on to its limit, and what came behind its end stood in the answer."""
    lm = LocalLM(f"local/{llama}", cache=False)
    text, end = lm.base_engine.text, lm.adapter.stop
    tokens = text.encode(f" It is he.\nanswer: Ada{end}", False)
    assert len(text.encode(end, False)) > 1
    monkeypatch.setattr(
        ensemble,
        "mix",
        lambda model, prompts, weights, limit, ended: next(
            tokens[:length] for length in range(1, len(tokens) + 1) if ended(tokens[:length])
        ),
    )
    mixed = answer_together(lm, GroundedAnswer, [], CALLS, [0.5, 0.5])
    assert mixed.completion_tokens == len(tokens) and mixed.finished


def test_it_shares_the_weights_and_not_the_hooks_of_the_engine():
    lm = LocalLM("local/pocket", cache=False)
    before = answer_together(lm, GroundedAnswer, [], CALLS, [0.5, 0.5])
    layer = lm.base_engine.model.get_submodule("model.layers.0.self_attn.q_proj")
    hook = layer.register_forward_hook(lambda layer, inputs, output: output * 0)
    try:
        assert answer_together(lm, GroundedAnswer, [], CALLS, [0.5, 0.5]) == before
    finally:
        hook.remove()
    assert before.prompt_tokens > len(CALLS) * 10


def test_an_lm_without_token_probabilities_is_refused(llama):
    for lm in (ScriptedLM(lambda f: {}), LocalLM(f"local/{llama}", adapter="chat")):
        with pytest.raises(InputError, match="take an LM in the process"):
            answer_together(lm, GroundedAnswer, [], CALLS, [0.5, 0.5])


def test_a_prompt_beyond_the_context_is_refused(llama):
    long = [{"question": "Who founded Velmora?" * 200, "passages": []}]
    with pytest.raises(LMError, match="cannot read so much") as refused:
        answer_together(LocalLM(f"local/{llama}"), GroundedAnswer, [], long, [1.0])
    assert refused.value.too_long and refused.value.exit_code == InputError.exit_code
