"""The pocket Llama: its weights must be what their manifest says, and its lessons what the adapter will ask it."""

import re
from pathlib import Path

import dspy
import pytest

import lm.pocket
from data.errors import InputError
from data.files import read_json, sha256_file
from lm.adapter import CompactAdapter
from lm.pocket.lessons import School
from lm.pocket.train import train
from signatures.answers import ComposedAnswer, DirectAnswer, GroundedAnswer
from signatures.judges import Decomposition, ListwiseRelevance, PassageRelevance, SelfKnowledge

LESSONS = {
    "recall": DirectAnswer,
    "guess": DirectAnswer,
    "read": GroundedAnswer,
    "read_on": GroundedAnswer,
    "judge_passage": PassageRelevance,
    "judge_passages": ListwiseRelevance,
    "judge_self": SelfKnowledge,
    "decompose": Decomposition,
    "compose": ComposedAnswer,
}


@pytest.mark.parametrize("name", LESSONS)
def test_lessons_are_written_as_the_adapter_asks(name: str) -> None:
    """A lesson in another format would teach a skill that no program could call on."""
    signature: type[dspy.Signature] = LESSONS[name]
    adapter = CompactAdapter(instructions=False, end="<|end|>\n")
    school = School("format")
    for _ in range(30):
        prompt, completion = getattr(school, name)(1.0)[-1]
        inputs: dict[str, str | list[str]] = {}
        for line in prompt.split("\n")[:-1]:
            field, value = line.split(": ", 1)
            if field in signature.input_fields:
                inputs[field] = value
            else:
                inputs.setdefault(f"{field}s", []).append(value)  # type: ignore[union-attr]
        assert adapter.prompt(signature, inputs) == prompt
        outputs = adapter.parse(signature, completion)
        assert adapter.completion(signature, outputs) == completion + "<|end|>\n"


def test_self_verdicts_are_taught_on_training_regions_only() -> None:
    """Else a know-judge measured on the test split would be reciting."""
    school = School("isolation")
    assert {home.number % 6 for home, _ in school.training} == {0, 1, 2}


def test_the_weights_are_the_ones_of_the_manifest() -> None:
    manifest = read_json(lm.pocket.path() / "manifest.json")
    weights = lm.pocket.path() / "model.safetensors"
    assert sha256_file(weights) == manifest["weights_sha256"]
    assert weights.stat().st_size < 20_000_000
    assert manifest["parameters"] < 10_000_000


def test_the_weights_reach_their_report() -> None:
    """On a sample of the exam, within what chance allows a sample to differ."""
    from transformers import AutoTokenizer, LlamaForCausalLM

    from lm.pocket.report import report

    model = LlamaForCausalLM.from_pretrained(lm.pocket.path(), dtype="float32")
    tokenizer = AutoTokenizer.from_pretrained(lm.pocket.path())
    claimed = read_json(lm.pocket.path() / "manifest.json")["report"]
    measured = report(model, tokenizer, n=60)
    assert measured.keys() == claimed.keys()
    for skill, result in measured.items():
        assert abs(result["right"] - claimed[skill]["right"]) < 0.2, skill
    assert measured["recall of taught facts"]["right"] > 0.95
    assert measured["recall of untaught facts"]["right"] < 0.1


def test_training_is_deterministic_and_learns(tmp_path: Path) -> None:
    runs = [train(tmp_path / name, tokens=12_000, size="tiny", threads=1, exam=5, progress=False) for name in "ab"]
    assert runs[0]["weights_sha256"] == runs[1]["weights_sha256"]
    assert runs[0]["curve"][-1]["loss"] < runs[0]["curve"][0]["loss"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_a_size_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=re.escape("unknown size 'huge': choose one of tiny, pocket, large")):
        train(tmp_path / "x", size="huge")
    with pytest.raises(InputError, match="less than one step"):
        train(tmp_path / "x", tokens=5)
