"""If these failed, how likely a name is would hang on its alphabet: a judge would know Bergen and never Москва."""

import math

import dspy
import pytest
from dspy.lm15 import Config, Message, Request

from raisf.lm.connect import connect
from raisf.lm.likelihood import likelihood, written
from raisf.lm.local.gguf import SHIPPED, converted, shipped_file
from raisf.lm.local.tokenization import Text
from raisf.utils.errors import InputError

NAMES = ["Bergen", "Kraków", "Malmö", "Đà Nẵng", "Žilina", "Москва", "東京", "\U0001f469\u200d\U0001f52c"]


def prediction(pieces, answer, logprob=-0.2):
    return dspy.Prediction(logprobs={"content": [{"logprob": logprob, **piece} for piece in pieces]}, answer=answer)


@pytest.fixture(scope="module")
def text(llama):
    """Of single bytes, but for some words."""
    return connect(f"local/{llama}").base_engine.text


def reply(name):
    return f' "The city is {name}, which lies there."\nanswer: {name}\n\n'


@pytest.mark.parametrize("name", NAMES)
def test_the_answers_own_tokens_count_in_any_alphabet(text, name):
    tokens = text.encode(reply(name), False)
    own = len(text.encode(name, False))
    said = prediction([{"token": piece} for piece in text.pieces(tokens)], name)
    assert likelihood(said, name) == pytest.approx(math.exp(-0.2 * (own + 1)))  # and where it ends
    assert written(said, name) == [-0.2] * own


@pytest.mark.parametrize("name", NAMES)
def test_an_endpoints_tokens_are_joined_by_their_bytes(text, name):
    """A server shows half a character as U+FFFD, and gives the bytes beside it."""
    tokens = text.encode(reply(name), False)
    names = text.tokenizer.convert_ids_to_tokens(tokens)
    alphabet = _bytes_of_names()
    pieces = [{"token": "\ufffd", "bytes": [alphabet[letter] for letter in one]} for one in names]
    said = prediction([*pieces, {"token": "<end>", "bytes": None}], name)
    assert written(said, name) == [-0.2] * len(text.encode(name, False))


def _bytes_of_names():
    """GPT-2's letters for bytes."""
    printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printed]
    return {chr(byte): byte for byte in printed} | {chr(256 + place): byte for place, byte in enumerate(others)}


def test_letters_of_the_end_marker_are_no_answer():
    pieces = ["[[ ## answer ## ]]\n", "let", "\n\n[[ ## comp", "let", "ed ## ]]", "<let>"]
    said = prediction([{"token": piece, "logprob": -2.0 if at == 1 else 0.0} for at, piece in enumerate(pieces)], "let")
    assert likelihood(said, "let") == pytest.approx(math.exp(-2.0))


def test_of_an_answer_that_is_named_before_it_is_given_the_last_place_counts():
    """In its quotation it is copied, which is easy: a guess would be as sure as that."""
    tokens = [("Rome", 0.9), (" it is.\nanswer:", 0.9), (" Rome", 0.25), ("\n\n", 1.0)]
    said = prediction([{"token": token, "logprob": math.log(p)} for token, p in tokens], "Rome")
    assert likelihood(said, "Rome") == pytest.approx(0.25)
    assert written(said, "Rome") == [math.log(0.25)]


@pytest.mark.parametrize("name", NAMES)
def test_pieces_add_up_to_the_text(text, name):
    tokens = text.encode(reply(name), False)
    pieces = text.pieces(tokens)
    assert len(pieces) == len(tokens) and "".join(pieces) == text.decode(tokens, False) == reply(name)
    assert text.pieces([]) == []
    cut = text.pieces(text.encode("東", False)[:1])
    assert cut == ["\ufffd"]  # what was cut off within a character is shown as such


def test_a_local_lm_tells_whole_characters(llama):
    """With random weights it writes bytes at random: half of them are no characters by themselves."""
    engine = connect(f"local/{llama}").base_engine
    config = Config(max_tokens=40, temperature=1.0, seed=3, logprobs=0)
    told = engine.complete(Request("m", (Message.user("Who?"),), config=config))
    assert told.logprobs and told.text and not all(one.token for one in told.logprobs)
    assert "".join(one.token for one in told.logprobs).startswith(told.text)


@pytest.mark.slow
@pytest.mark.parametrize("name", SHIPPED)
def test_the_shipped_tokenizer_too(name):
    from transformers import AutoTokenizer

    try:
        file = shipped_file(name)
    except InputError:
        pytest.skip(f"{name} is not installed")
    text = Text(AutoTokenizer.from_pretrained(converted(file)))
    for city in NAMES:
        tokens = text.encode(reply(city), False)
        said = prediction([{"token": piece} for piece in text.pieces(tokens)], city)
        assert written(said, city) == [-0.2] * len(text.encode(f" {city}", False))


@pytest.mark.parametrize(("answer", "end"), [("end", "<|end|>"), ("s", "</s>"), ("text", "<|endoftext|>\n")])
def test_the_letters_of_an_end_mark_are_no_answers(answer, end):
    """The mark's own certainty was taken for the answer's: a guess counted as known."""
    pieces = [{"token": " "}, {"token": answer, "logprob": -2.0}, {"token": end, "logprob": -0.001}]
    assert likelihood(prediction(pieces, answer), answer) == pytest.approx(math.exp(-2.001))
    assert written(prediction(pieces, answer), answer) == [-2.0]
