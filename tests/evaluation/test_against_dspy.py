"""Our EM and F1 against DSPy's, an independent implementation of SQuAD's and HotpotQA's official arithmetic.

DSPy's `EM` and `F1` are SQuAD's measures (Rajpurkar et al. 2016), its `HotPotF1` is HotpotQA's: an answer `yes`, `no`
or `noanswer` gets no part marks. We follow HotpotQA for every data set, so that yes/no answers mean the same wherever
they come; for other answers both rules agree. Two differences are known: DSPy decomposes accented letters first (NFD),
so texts are compared in that form; and where both sides are empty once normalised we give F1 1.0 (SQuAD 2.0), DSPy 0.0.

TriviaQA's own script also puts a space where punctuation was, and strips a few quotes more. We do as the open-domain
papers do (Lee et al. 2019; Karpukhin et al. 2020) and score TriviaQA by SQuAD's normalisation.
"""

import random
import unicodedata
from pathlib import Path

import pytest
from dspy.evaluate.metrics import EM, F1, HotPotF1
from hypothesis import given
from hypothesis import strategies as st

from raisf.data.questions import load_questions
from raisf.evaluation.metrics import exact_match, normalise, token_f1

SHARED = Path(__file__).parents[3] / "shared" / "data"

WORDS = st.sampled_from(
    [
        "yes",
        "no",
        "noanswer",
        "No.",
        "the",
        "A",
        "an",
        "Elm",
        "elm-river",
        "River!",
        "U.S.",
        "1,000",
        "é",
        "à",
        "ß",
        "\t",
    ]
)
TEXTS = st.one_of(st.lists(WORDS, max_size=6).map(" ".join), st.text(max_size=30))
CLOSED = {"yes", "no", "noanswer"}


def nfd(text: str) -> str:
    return unicodedata.normalize("NFD", text)


@given(TEXTS, st.lists(TEXTS, min_size=1, max_size=4))
def test_every_text_scores_the_same(prediction: str, answers: list[str]):
    prediction, answers = nfd(prediction), [nfd(answer) for answer in answers]
    assert exact_match(prediction, answers) == float(EM(prediction, answers))
    if not normalise(prediction) and not all(map(normalise, answers)):
        assert (token_f1(prediction, answers), HotPotF1(prediction, answers)) == (1.0, 0.0)
        return
    assert token_f1(prediction, answers) == pytest.approx(HotPotF1(prediction, answers), abs=5e-5)
    if not CLOSED.intersection(map(normalise, (prediction, *answers))):
        assert token_f1(prediction, answers) == pytest.approx(F1(prediction, answers), abs=5e-5)


def test_yes_and_no_are_where_squad_and_hotpotqa_part():
    assert (F1("yes, it is", ["yes"]), HotPotF1("yes, it is", ["yes"]), token_f1("yes, it is", ["yes"])) == (0.5, 0, 0)


@pytest.mark.parametrize(
    "path", ["hotpotqa/dev.jsonl", "musique/train_sample.json", "strategyqa/bigbench_first1200.json"]
)
def test_a_test_sets_scores_agree_to_the_fourth_digit(path: str):
    if not (SHARED / path).is_file():
        pytest.skip(f"no {path} in a folder shared/data beside the repository")
    examples, rng = load_questions(SHARED / path), random.Random(0)
    # As models answer: right, in a sentence, partly, another question's answer, yes or no, nothing.
    ways = (
        lambda e: rng.choice(e.answers),
        lambda e: f"The answer is {e.answer.upper()}.",
        lambda e: " ".join(e.answer.split()[:2]),
        lambda e: rng.choice(examples).answer,
        lambda e: rng.choice(["Yes", "no."]),
        lambda e: "",
    )
    predictions = [nfd(rng.choice(ways)(example)) for example in examples]
    gold = [[nfd(answer) for answer in example.answers] for example in examples]
    pairs = list(zip(predictions, gold, strict=True))

    def mean(measure) -> float:
        return sum(float(measure(*pair)) for pair in pairs) / len(pairs)

    assert 0.1 < mean(exact_match) < 0.9
    assert mean(exact_match) == pytest.approx(mean(EM), abs=5e-5)
    assert mean(token_f1) == pytest.approx(mean(HotPotF1), abs=5e-5)
