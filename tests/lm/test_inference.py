"""Scores and texts must be the model's own, however they are batched: a verdict may not depend on its neighbours."""

import shutil

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st

from raisf.lm.local.inference import completions, context_of, load_model, read, score
from raisf.lm.local.token_tree import pack
from raisf.lm.local.tokenization import TokenizedRow
from tests.lm.conftest import random_tokens, written


def one_by_one(model, sequence, start):
    with torch.inference_mode():
        logprobs = model(torch.tensor([sequence])).logits[0].log_softmax(-1)
    return sum(float(logprobs[i - 1, sequence[i]]) for i in range(start, len(sequence)))


def test_scores_are_the_log_probabilities_of_a_plain_forward_pass(model):
    head, *prompts = random_tokens(0, 30, 5, 17, 1, 40)
    labels = random_tokens(1, 1, 3, 2)
    sequences = [head + prompt + label for prompt in prompts for label in labels]
    starts = [len(head) + len(prompt) for prompt in prompts for _ in labels]
    expected = [one_by_one(model, *pair) for pair in zip(sequences, starts, strict=True)]
    assert score(model, sequences, starts) == pytest.approx(expected, abs=1e-4)


def test_a_sequence_that_begins_another_and_one_asked_twice_are_scored_too(model):
    [tokens] = random_tokens(2, 12)
    sequences, starts = [tokens, tokens[:8], tokens], [6, 6, 1]
    expected = [one_by_one(model, *pair) for pair in zip(sequences, starts, strict=True)]
    assert score(model, sequences, starts) == pytest.approx(expected, abs=1e-4)


@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=8), min_size=1, max_size=8))
def test_the_tree_holds_every_sequence_and_each_beginning_once(sequences):
    tokens, positions, sees, paths = pack(sequences)
    for sequence, path in zip(sequences, paths, strict=True):
        assert [tokens[i] for i in path] == sequence
        assert [positions[i] for i in path] == list(range(len(sequence)))
        for depth, place in enumerate(path):
            assert np.flatnonzero(sees[place]).tolist() == sorted(path[: depth + 1].tolist())
    assert len(tokens) == len({tuple(sequence[: n + 1]) for sequence in sequences for n in range(len(sequence))})


@pytest.fixture(scope="module")
def deepseek():
    """Its keys and values differ in their width, as it keeps both packed."""
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    packed = {"q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 8}
    torch.manual_seed(0)
    config = transformers.DeepseekV3Config(vocab_size=400, first_k_dense_replace=2, **shape, **packed)
    return transformers.DeepseekV3ForCausalLM(config).eval()


@pytest.mark.parametrize("name", ["model", "deepseek"])
def test_a_batch_gives_each_prompt_what_transformers_gives_it_alone(request, name):
    model = request.getfixturevalue(name)
    prompts = random_tokens(3, 4, 19, 7, 7, 60)
    limits = [12, 3, 12, 8, 12]
    got = written(model, prompts, limits, end=2)
    for row, (prompt, limit) in enumerate(zip(prompts, limits, strict=True)):
        ids = torch.tensor([prompt])
        options = {"max_new_tokens": limit, "do_sample": False, "eos_token_id": 2, "pad_token_id": 0}
        alone = model.generate(ids, attention_mask=torch.ones_like(ids), **options)
        assert got[row] == alone[0, len(prompt) :].tolist()


def test_the_vocabulary_is_multiplied_once_for_all_rows(model):
    """States that lie apart in memory cost a product a row: in bfloat16, seconds before each batch's first token."""
    seen = []
    hook = model.lm_head.register_forward_pre_hook(lambda head, given: seen.append(given[0]))
    try:
        list(written(model, random_tokens(3, 4, 19), [2, 2]))
        list(written(model, random_tokens(3, 7), [2]))
        completions(model, model, [TokenizedRow(tokens, 3, 1.0) for tokens in random_tokens(5, 6, 9)])
    finally:
        hook.remove()
    assert len(seen) >= 5
    assert all(states.stride() == torch.empty(states.shape).stride() for states in seen)


def test_a_finished_text_is_given_before_longer_ones(model):
    assert list(written(model, random_tokens(4, 5, 9), [10, 2])) == [1, 0]


def windowed(name):
    """A model whose layers, all or some, see the last 16 tokens; loud, so that what it does not see makes a change."""
    shape = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 6, "num_attention_heads": 4}
    shape |= {"num_key_value_heads": 4, "vocab_size": 400, "max_position_embeddings": 512, "initializer_range": 0.06}
    shape |= {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    gemma = {"head_dim": 16, "query_pre_attn_scalar": 16}
    more = {"Gemma2Config": gemma, "Gemma3TextConfig": gemma, "Qwen2Config": {"use_sliding_window": True}}
    if name == "Qwen2Config":
        more[name]["max_window_layers"] = 3
    torch.manual_seed(0)
    return getattr(transformers, name)(sliding_window=16, **shape, **more.get(name, {}))


@pytest.fixture(
    params=["MistralConfig", "Phi3Config", "Qwen2Config", "Gemma2Config", "Gemma3TextConfig"], scope="module"
)
def forgetful(request, llama, tmp_path_factory):
    """Read from its folder, as everybody reads it."""
    folder = tmp_path_factory.mktemp("forgetful")
    transformers.AutoModelForCausalLM.from_config(windowed(request.param)).save_pretrained(folder)
    for file in llama.glob("tokenizer*"):
        shutil.copy(file, folder)
    return load_model(folder)[0]


def test_layers_with_a_sliding_window_see_as_far_as_they_would_alone(forgetful):
    head, *prompts = random_tokens(0, 30, 5, 17, 1, 40)
    labels = random_tokens(1, 1, 3)
    sequences = [head + prompt + label for prompt in prompts for label in labels]
    starts = [len(head) + len(prompt) for prompt in prompts for _ in labels]
    expected = [one_by_one(forgetful, *pair) for pair in zip(sequences, starts, strict=True)]
    assert score(forgetful, sequences, starts) == pytest.approx(expected, abs=1e-3)


def test_a_batch_of_a_model_with_a_sliding_window_is_written_as_transformers_writes_each_alone(forgetful):
    prompts = random_tokens(3, 4, 19, 7, 60)
    got = written(forgetful, prompts, [24, 3, 24, 12], end=2)
    for row, (prompt, limit) in enumerate(zip(prompts, [24, 3, 24, 12], strict=True)):
        ids = torch.tensor([prompt])
        options = {"max_new_tokens": limit, "do_sample": False, "eos_token_id": 2, "pad_token_id": 0}
        alone = forgetful.generate(ids, attention_mask=torch.ones_like(ids), **options)
        assert got[row] == alone[0, len(prompt) :].tolist()


def stateful(name):
    """A model of two layers, one of which, or both, tells by more than attention what came before."""
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 400}
    shape |= {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "initializer_range": 0.3}
    inner = {"num_key_value_heads": 2, "intermediate_size": 64, "max_position_embeddings": 512}
    mamba = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_n_groups": 1, "mamba_d_ssm": 64}
    more = {
        "Lfm2Config": inner | {"full_attn_idxs": [1]},
        "FalconH1Config": inner | mamba,
        "FalconConfig": {"alibi": True, "multi_query": False},
    }
    torch.manual_seed(0)
    return getattr(transformers, name)(**shape, **more[name])


@pytest.fixture(params=["Lfm2Config", "FalconH1Config", "FalconConfig"], scope="module")
def rowwise(request):
    config = stateful(request.param)
    return transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()


def test_a_model_that_keeps_a_state_scores_each_sequence_as_if_alone(rowwise):
    """Where it read labels one behind the other, the second label's score would hang on the first."""
    head, *prompts = random_tokens(0, 30, 5, 17, 40)
    labels = random_tokens(1, 1, 3)
    sequences = [head + prompt + label for prompt in prompts for label in labels]
    starts = [len(head) + len(prompt) for prompt in prompts for _ in labels]
    expected = [one_by_one(rowwise, *pair) for pair in zip(sequences, starts, strict=True)]
    assert score(rowwise, sequences, starts) == pytest.approx(expected, abs=1e-4)
    with torch.inference_mode():
        alone = rowwise(torch.tensor([sequences[0]]), output_hidden_states=True).hidden_states[1][0, -1].numpy()
    wanted = [[1], *[[]] * (len(sequences) - 1)]
    sums, states = read(rowwise, sequences, [len(sequences[0]), *starts[1:]], layers=wanted)
    assert sums == pytest.approx([0.0, *expected[1:]], abs=1e-4)
    assert states[0][0] == pytest.approx(alone, abs=1e-4)


def test_a_batch_of_a_model_that_keeps_a_state_goes_on_when_some_have_ended(rowwise):
    prompts, limits = random_tokens(3, 4, 19, 7, 60), [12, 3, 9, 6]
    got = written(rowwise, prompts, limits)
    for row, (prompt, limit) in enumerate(zip(prompts, limits, strict=True)):
        tokens = list(prompt)
        for _ in range(limit):
            with torch.inference_mode():
                tokens.append(int(rowwise(torch.tensor([tokens])).logits[0, -1].argmax()))
        assert got[row] == tokens[len(prompt) :]


def test_of_a_model_that_sees_images_its_texts_own_configuration_counts():
    """A Gemma 3 from 4B on tells of its window and its context in a part of its own: both were passed over."""
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 400, "head_dim": 8}
    shape |= {"num_key_value_heads": 2, "intermediate_size": 64, "initializer_range": 0.3}
    text = {
        **shape,
        "max_position_embeddings": 99,
        "sliding_window": 8,
        "layer_types": ["sliding_attention", "full_attention"],
    }
    sight = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.Gemma3Config(text_config=text, vision_config={**sight, "image_size": 28, "patch_size": 14})
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()
    head, *labels = random_tokens(5, 30, 1, 3)
    sequences = [head + label for label in labels]
    expected = [one_by_one(model, sequence, len(head)) for sequence in sequences]
    assert score(model, sequences, [len(head)] * 2) == pytest.approx(expected, abs=1e-4)
    assert context_of(model) == 99
