"""DSPy's own tools work on the programs: copies, saved state, evaluation, teleprompters."""

import threading

import dspy
import pytest

from raisf.optimize.copying import copy_of
from raisf.programs import registry
from raisf.programs.baselines.direct import Direct
from raisf.programs.baselines.rag import RAG
from raisf.programs.ra_isf import RAISF
from raisf.utils.errors import InputError
from tests.scripted import ScriptedLM

EXAMPLES = [dspy.Example(question=f"root {n}", answer=f"A(root {n})").with_inputs("question") for n in range(4)]


def right(example, prediction, trace=None):
    return prediction.answer == example.answer


@pytest.fixture
def lm(scripted, plan):
    return scripted(root=plan(subs=["a", "b #1", "a"]), a=plan(know=True), b=plan(relevant=1))


@pytest.mark.parametrize("make", [lambda shelf: Direct(), RAG, RAISF])
def test_a_copy_shares_the_index_and_nothing_else(shelf, make):
    program = make(shelf)
    for copy in (program.deepcopy(), program.reset_copy()):
        assert copy.retriever is program.retriever
        assert registry.options(copy) == registry.options(program)
        for (name, mine), (_, its) in zip(program.named_predictors(), copy.named_predictors(), strict=True):
            assert mine is not its, name
            its.demos.append(dspy.Example())
            assert not mine.demos


def test_the_predictors_have_the_names_that_saved_programs_use(shelf):
    names = [name for name, _ in RAISF(shelf).named_predictors()]
    assert names == ["know", "relevant", "decompose", "answer_directly", "answer_from", "compose"]


def test_state_is_saved_and_loaded_as_json(shelf, tmp_path):
    program = RAISF(shelf)
    program.know.demos = [dspy.Example(question="q", verdict="know")]
    program.save(tmp_path / "state.json")
    loaded = RAISF(shelf)
    loaded.load(tmp_path / "state.json")
    assert loaded.know.demos[0]["verdict"] == "know"


def test_dspys_evaluate_scores_it(lm, shelf):
    with dspy.context(lm=lm):
        result = dspy.Evaluate(devset=EXAMPLES, metric=right, num_threads=4, display_progress=False)(RAISF(shelf))
    assert result.score == 100.0


def test_bootstrapping_gives_every_predictor_its_own_demonstrations(lm, shelf):
    teleprompter = dspy.BootstrapFewShot(metric=right, max_bootstrapped_demos=2, max_labeled_demos=0)
    with dspy.context(lm=lm):
        compiled = teleprompter.compile(RAISF(shelf), trainset=EXAMPLES)
        assert compiled.retriever is shelf
        assert compiled(question="root 9").answer == "A(root 9)"
    assert set(compiled.relevant.demos[0].keys()) >= {"question", "passage", "verdict"}
    assert set(compiled.compose.demos[0].keys()) >= {"question", "facts", "answer"}
    assert all(predictor.demos for predictor in compiled.predictors())


class Rewriting(dspy.Module):
    def __init__(self):
        super().__init__()
        self.rewrite = dspy.Predict("query -> words")

    def forward(self, query, k):
        return [self.rewrite(query=query).words] * k


class Around(dspy.Module):
    def __init__(self, search=None):
        super().__init__()
        search = search or Rewriting()
        self.rag = RAG(search)  # the program is copied first
        self.search = search

    def forward(self, question):
        return self.rag(question=question)


class Within(Rewriting):
    def __init__(self):
        super().__init__()
        self.rag = RAG(super().forward)

    def forward(self, question):
        return self.rag(question=question)


@pytest.mark.parametrize("make", [Around, Within])
def test_a_retriever_within_the_same_module_is_compiled_with_it(make):
    def reply(fields):
        asked = fields.get("query") or fields["question"]
        return {"words": f"of {asked}", "answer": f"A({asked})", "evidence": ""}

    lm, teleprompter = ScriptedLM(reply), dspy.BootstrapFewShot(right, max_bootstrapped_demos=2, max_labeled_demos=0)
    with dspy.context(lm=lm):
        compiled = teleprompter.compile(make(), trainset=EXAMPLES)
        rewrites = [two for name, two in compiled.named_predictors() if name.endswith("rewrite")]
        assert [[demo.words for demo in two.demos] for two in rewrites] == [["of root 0", "of root 1"]]
        compiled(question="root 9")
    asked = next(call for call in lm.history[::-1] if "root 9" in str(call["messages"]) and "words" in str(call))
    assert "of root 1" in str(asked["messages"]), "what it searches with shows the demonstrations"
    assert all(not two.demos for two in make().predictors())


def test_a_retriever_that_cannot_be_copied_is_shared_and_so_are_its_lm_and_its_index(shelf):
    search = Rewriting()
    search.rewrite.lm, search.index = ScriptedLM({}), shelf
    program = RAG(search)
    copied = program.deepcopy().retriever
    assert copied.given.rewrite is not search.rewrite and copied.given.rewrite.lm is search.rewrite.lm
    assert copied.corpus_hash == program.retriever.corpus_hash
    search.lock = threading.Lock()
    copied = program.deepcopy().retriever.given
    assert copied.lock is search.lock and copied.rewrite is not search.rewrite
    search.locks = [threading.Lock()]
    assert program.deepcopy().retriever is program.retriever
    assert [name for name, _ in copy_of(Around(search)).named_predictors()] == ["rag.answer_from", "search.rewrite"]


def test_dspys_trace_comes_in_the_order_of_the_tree(lm, shelf, one_at_a_time):
    """Otherwise the same seed would compile another program each time."""
    from raisf.programs.concurrency import set_concurrency

    def steps():
        program = RAISF(shelf)
        names = {id(predictor): name for name, predictor in program.named_predictors()}
        with dspy.context(lm=lm, trace=[]):
            program(question="root")
            return [(names[id(predictor)], inputs) for predictor, inputs, _ in dspy.settings.trace]

    in_order = steps()
    assert [name for name, _ in in_order[:8]] == ["know", *["relevant"] * 5, "decompose", "know"]
    set_concurrency(16)
    assert all(steps() == in_order for _ in range(5))


def test_the_registry_makes_a_program_again_from_its_options(shelf):
    program = RAISF(shelf, k=7, relevance="listwise", use_know=False, max_calls=30)
    again = registry.build("ra-isf", shelf, **registry.options(program))
    assert registry.options(again) == registry.options(program)
    assert again.retriever is shelf
    assert isinstance(registry.build("direct", shelf), Direct)


def test_the_registry_says_what_there_is(shelf):
    with pytest.raises(InputError, match="unknown program 'raisf': choose ra-isf, direct, cot"):
        registry.build("raisf", shelf)
    with pytest.raises(InputError, match="rag has no option 'max_depth': choose k, evidence, max_calls, max_seconds"):
        registry.build("rag", shelf, max_depth=3)
