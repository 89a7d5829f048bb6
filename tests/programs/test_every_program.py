"""What holds for each program of the registry: whatever the LM says, however it is saved, and with a real LM."""

import json
import random

import dspy
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import raisf
from raisf.data.questions import load_questions
from raisf.evaluation.metrics import normalise
from raisf.lm.connect import connect
from raisf.optimize.optimizers.fit_skr import FitSKR
from raisf.programs.ra_isf import MAX_SAMPLES, RAISF
from raisf.programs.registry import PROGRAMS, about, build, defaults, options, searches
from raisf.programs.rendering import render
from raisf.programs.trace import Trace
from raisf.retrieval.corpus.reading import read_documents
from raisf.retrieval.engines.bm25 import BM25
from raisf.utils.errors import InputError
from tests.scripted import ScriptedLM

# What a program cannot be made or run without.
NEEDED = {"skr-knn": {"cases": [{"question": "root?", "helped": True}, {"question": "who?", "helped": False}]}}
# replug reads token probabilities, which no script has.
SCRIPTED = [name for name in PROGRAMS if name != "replug"]
SETTINGS = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

WORDS = ["", " ", "unknown", "none", "yes", "root", "Ada", "A? B.", "#1", "who is #1?", "Search[Ada]", "Finish[Velm]",
         "Search[", "So the answer is: Velm.", "]] ## answer ## [[", "ß" * 300, "1; 2", "[1, 2]"]  # fmt: skip
LABELS = {
    "verdict": ["know", "unknown", "relevant", "irrelevant", "maybe"],
    "retrieve": ["yes", "no", "perhaps"],
    "support": ["fully", "partially", "none", "some"],
    "usefulness": ["1", "3", "5", "6"],
}
TEXTS = ["answer", "evidence", "reasoning", "thought", "follow_up", "action", "background", "topic", "review"]


def made(name, retriever, **given):
    return build(name, retriever, **NEEDED.get(name, {}), **given)


def rubbish(seed):
    """An LM that says one thing or another, the same to the same call; about as often sense as nonsense."""

    def answer(fields):
        rng = random.Random(f"{seed} {json.dumps(fields)}")
        if rng.random() < 0.15:
            return rng.choice(["mumble", "[[ ## answer ## ]]", "{}", "answer: Ada"])
        outputs = {name: rng.choice(WORDS) for name in TEXTS}
        outputs |= {name: rng.choice(labels) for name, labels in LABELS.items()}
        outputs["sub_questions"] = rng.choices(WORDS, k=rng.randrange(4))
        outputs["relevant_ids"] = outputs["helpful_ids"] = rng.choices(range(-1, 8), k=rng.randrange(4))
        return {name: value for name, value in outputs.items() if rng.random() < 0.95}

    return ScriptedLM(answer)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("value", [0, 2.5, "7", True])
def test_a_count_is_a_whole_number(name, value):
    for option in {"k", "max_calls"} & defaults(PROGRAMS[name]).keys():
        with pytest.raises(InputError, match=f"{option} is .*a whole number, 1 or more"):
            PROGRAMS[name](**NEEDED.get(name, {}), **{option: value})


@pytest.mark.parametrize("samples", [1, 2.5, MAX_SAMPLES + 1, None])
def test_samples_are_a_whole_number_that_can_be_compared_and_paid(samples):
    with pytest.raises(InputError, match=f"samples is {samples}: give a whole number, 2 to {MAX_SAMPLES}"):
        RAISF(samples=samples)


@pytest.mark.parametrize("name", SCRIPTED)
@SETTINGS
@given(seed=st.integers(0, 2**32), max_calls=st.sampled_from([None, None, 1, 2, 3, 5, 8]))
def test_whatever_the_lm_says_there_is_an_answer_and_a_whole_trace(name, seed, max_calls, shelf):
    lm = rubbish(seed)
    with dspy.context(lm=lm):
        prediction = made(name, shelf, max_calls=max_calls)(question="root?")
    trace = prediction.trace
    assert prediction.answer and trace.system == name
    assert Trace.model_validate_json(trace.model_dump_json()) == trace
    assert trace.cost.lm_calls == len(lm.calls) <= (max_calls or 1000)
    for node in trace.root.walk():
        assert node.answer and node.reason != "not finished"
        assert node.route in ("direct", "passages", "decomposed", "duplicate", "acted") or node.answer == "unknown"
    assert render(trace)


@pytest.mark.parametrize("name", SCRIPTED)
def test_a_budget_of_one_call_is_kept_and_said(name, shelf):
    lm = ScriptedLM(lambda f: "mumble")
    lm.adapter = dspy.ChatAdapter()  # an unreadable output is asked for again in JSON: the second call
    with dspy.context(lm=lm):
        trace = made(name, shelf, max_calls=1)(question="root?").trace
    assert len(lm.calls) == 1
    assert (trace.root.route, trace.root.answer) == ("budget", "unknown")
    assert trace.root.reason == "max_calls=1 is spent"


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_is_made_again_from_its_options_and_state(name, shelf, tmp_path):
    program = made(name, shelf, max_calls=30, max_seconds=9.0)
    for predictor in program.predictors():
        predictor.demos = [dspy.Example(question="a demonstration")]
    program.save(tmp_path / "state.json")
    again = build(name, shelf, **json.loads(json.dumps(options(program))))
    again.load(tmp_path / "state.json")
    assert options(again) == options(program) and again.retriever is program.retriever
    assert all(dict(predictor.demos[0])["question"] == "a demonstration" for predictor in again.predictors())
    assert [n for n, _ in again.named_predictors()] == [n for n, _ in program.named_predictors()]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_copy_shares_the_index_and_nothing_else(name, shelf):
    program = made(name, shelf)
    for copy in (program.deepcopy(), program.reset_copy()):
        assert copy.retriever is program.retriever
        assert options(copy) == options(program)
        for (_, mine), (_, its) in zip(program.named_predictors(), copy.named_predictors(), strict=True):
            assert mine is not its
            its.demos.append(dspy.Example())
            assert not mine.demos


def sense(fields):
    """Whatever is asked, something that fits."""
    return {
        "verdict": "relevant" if "passage" in fields else "unknown",
        "relevant_ids": [1],
        "helpful_ids": [1],
        "retrieve": "yes",
        "support": "fully",
        "usefulness": "5",
        "sub_questions": ["who?", "where is #1?"],
        "follow_up": "none" if fields.get("facts") else "who?",
        "action": "Finish[right]" if fields.get("steps") else "Search[who?]",
        "thought": "So the answer is: right." if fields.get("thoughts") else "It is there.",
        **dict.fromkeys(("evidence", "reasoning", "background", "topic", "review"), "It is there."),
        "answer": "right",
    }


@pytest.mark.parametrize("name", SCRIPTED)
def test_dspys_teleprompters_give_each_predictor_that_was_asked_its_own_demonstrations(name, shelf):
    lm = ScriptedLM(sense)
    trainset = [dspy.Example(question=f"root {n}?", answer="right").with_inputs("question") for n in range(2)]
    teleprompter = dspy.BootstrapFewShot(
        metric=lambda example, prediction, trace=None: prediction.answer == example.answer, max_labeled_demos=0
    )
    with dspy.context(lm=lm, trace=[]):
        compiled = teleprompter.compile(made(name, shelf), trainset=trainset)
        program = made(name, shelf)
        assert program(question="root 9?").answer == compiled(question="root 9?").answer == "right"
        asked = {id(predictor) for predictor, _, _ in dspy.settings.trace}
    shown = {n: predictor for n, predictor in compiled.named_predictors() if predictor.demos}
    assert set(shown) == {n for n, predictor in program.named_predictors() if id(predictor) in asked}
    for predictor in shown.values():
        fields = {*predictor.signature.input_fields, *predictor.signature.output_fields}
        assert fields <= set(predictor.demos[0].keys())


@pytest.mark.parametrize("name", [name for name in SCRIPTED if "evidence" in defaults(PROGRAMS[name])])
def test_without_evidence_it_reads_as_the_papers_do_and_quotes_nothing(name, shelf):
    lm = ScriptedLM(sense)
    reads = {"reader": "answer"} if name == "ircot" else {}
    with dspy.context(lm=lm):
        trace = made(name, shelf, evidence=False, **reads)(question="root?").trace
    assert trace.root.answer == "right"
    assert not any("## evidence ##" in str(call["messages"]) for call in lm.history)
    assert not any(node.evidence for node in trace.root.walk())


@pytest.mark.parametrize("name", PROGRAMS)
def test_bad_values_are_refused_with_the_remedy(name, shelf):
    numbers = [option for option, value in defaults(PROGRAMS[name]).items() if type(value) is int]
    for option in [*numbers, "max_calls", "max_seconds"]:
        with pytest.raises(InputError, match=f"{option} is -1: give"):
            made(name, shelf, **{option: -1})
    switches = [option for option, value in defaults(PROGRAMS[name]).items() if isinstance(value, bool)]
    for option in [*switches, *({"yes_no", "filter_steps"} & defaults(PROGRAMS[name]).keys())]:
        with pytest.raises(InputError, match=f"{option} is 'false': give True or False"):
            PROGRAMS[name](shelf, **{option: "false"})


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_list_of_programs_says_what_it_does_and_where_it_comes_from(name):
    summary, source = about(PROGRAMS[name])
    assert summary.endswith(".") and 20 < len(summary) < 120
    assert "arXiv" in source and len(source) < 200


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A small closed world: its index, and some questions with their gold answers."""
    folder = tmp_path_factory.mktemp("world") / "w"
    raisf.write_world(folder, entities=300, counts={"train": 24, "dev": 1, "test": 4})
    index = BM25.build(read_documents(folder / "corpus.jsonl"), folder.parent / "index")
    return index, load_questions(folder / "train.jsonl"), load_questions(folder / "test.jsonl")


@pytest.mark.parametrize("name", PROGRAMS)
def test_with_the_pocket_llama_it_ends_with_an_answer_and_its_costs(name, world):
    index, _, test = world
    program = made(name, index, k=3) if "k" in defaults(PROGRAMS[name]) else made(name, index)
    program.set_lm(connect("pocket", max_tokens=64).copy(cache=False))  # what comes from DSPy's cache costs no tokens
    for example in test[:2]:
        prediction = program(question=example.question)
        cost = prediction.trace.cost
        assert isinstance(prediction.answer, str) and prediction.answer.strip()
        assert prediction.trace.root.reason != "not finished"
        assert cost.lm_calls >= 1 and cost.prompt_tokens > 0 and cost.completion_tokens > 0
        assert cost.retrievals == 0 or searches(type(program))


def test_skr_learns_from_a_real_lm_where_retrieval_helps(world, tmp_path):
    index, train, _ = world
    program, lm = build("skr-knn", index, labelled_by="answer"), connect("pocket", max_tokens=64)
    program.set_lm(lm)
    labelled, helped = [], []
    with dspy.context(lm=lm):
        for number, example in enumerate(train[:8]):
            # Gold is what it says with passages, and for every other question what it says without.
            answers = [build(name, index)(question=example.question).answer for name in ("direct", "rag")]
            labelled.append(example.copy(answer=answers[number % 2], answers=[answers[number % 2]]))
            if normalise(answers[0]) != normalise(answers[1]):
                helped.append((example.question, number % 2 == 1))
    program = FitSKR(work=tmp_path / "work", progress=False).compile(program, trainset=labelled)
    assert [(case["question"], case["helped"]) for case in program.cases] == helped
    assert program(question=train[0].question).trace.root.know.verdict in ("know", "unknown")
