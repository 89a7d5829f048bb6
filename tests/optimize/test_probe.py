"""If these failed, a probe would be fitted on other prompts than it judges, or an artifact would judge with another."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dspy
import numpy as np
import pytest
from click.testing import CliRunner

from raisf.commands.optimizing import WeightsChoice
from raisf.data.questions import load_questions
from raisf.data.world.files import write_world
from raisf.lm.connect import adapter_for, connect
from raisf.lm.finetune.lora import TrainingRow, train
from raisf.lm.finetune.training import Training
from raisf.lm.local.model import LocalLM
from raisf.lm.local.probes import PROBE, STATES
from raisf.optimize.artifact import load, save
from raisf.optimize.compile import compile
from raisf.optimize.judges.judgements import judgements_of
from raisf.optimize.optimizers import probe as optimizer
from raisf.optimize.optimizers.probe_fit import LabelledStates, fit_probe, tried_layers
from raisf.optimize.prompts import instructed
from raisf.programs.ra_isf import RAISF
from raisf.retrieval.corpus.reading import read_documents
from raisf.retrieval.engines.bm25 import BM25
from raisf.utils.errors import InputError
from raisf.utils.files import read_json
from tests.optimize.halving import Count
from tests.scripted import ScriptedLM


def rows(rng: Any, n: int, labels: int, width: int, apart: float) -> LabelledStates:
    """Two layers: the first is noise, of the second some features are larger for each label."""
    gold = rng.integers(labels, size=n)
    states = rng.normal(size=(n, 2, width))
    states[:, 1] += apart * (np.arange(width) % labels == gold[:, None])
    return LabelledStates(states.astype(np.float32), gold, np.ones(n))


@pytest.mark.parametrize(("labels", "width", "n"), [(2, 8, 200), (3, 8, 200), (2, 300, 60)])
def test_what_a_line_divides_is_found_in_the_layer_that_has_it(labels: int, width: int, n: int) -> None:
    rng = np.random.default_rng(0)
    train, validation, test = (rows(rng, n, labels, width, apart=6.0) for _ in range(3))
    probe, report = fit_probe("abc"[:labels], [3, 6], train, validation)
    assert probe.layer == 6 and report["validation"]["auroc"] > 0.99 and report["validation"]["n"] == n
    assert len(report["curve"]) == 2 * 5 and min(one["log_loss"] for one in report["curve"] if one["layer"] == 3) > 0.5
    found = probe.logits(test.states[:, 1]).argmax(1)
    assert (found == test.gold).mean() > 0.97


def test_the_weights_are_the_minimum_of_the_penalised_loss() -> None:
    """A step in any direction makes the loss larger, whether rows or features are fewer."""
    from scipy.special import log_softmax

    from raisf.optimize.optimizers.probe_fit import _fitted

    rng = np.random.default_rng(1)
    for n, width in ((40, 5), (12, 30)):
        features, gold, weights = rng.normal(size=(n, width)), np.eye(2)[rng.integers(2, size=n)], rng.uniform(size=n)
        for c, weight, bias in _fitted(features, gold, weights):

            def loss(
                weight: Any, bias: Any, c: float = c, features: Any = features, given: Any = (gold, weights)
            ) -> Any:
                each = (given[0] * log_softmax(features @ weight.T + bias, axis=-1)).sum(1)
                return 0.5 * (weight**2).sum() - c * (given[1] * each).sum()

            least = loss(weight, bias)
            for _ in range(20):
                step = 0.1 * rng.normal(size=(2, width + 1))
                assert loss(weight + step[:, :-1], bias + step[:, -1]) > least - 1e-6


def test_a_deep_model_is_tried_at_every_second_layer() -> None:
    assert tried_layers(4) == [1, 2, 3, 4] and tried_layers(24) == list(range(1, 25))
    assert tried_layers(32) == list(range(2, 33, 2)) and tried_layers(33)[-1] == 33


# RA-ISF's judges on the pocket Llama


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A part of the world that the pocket Llama knows half of: (index, train, dev, test)."""
    folder = tmp_path_factory.mktemp("home")
    write_world(folder / "w", entities=600, counts={"train": 60, "dev": 20, "test": 30})
    BM25.build(read_documents(folder / "w" / "corpus.jsonl"), folder / "index")
    splits = [load_questions(folder / "w" / f"{split}.jsonl") for split in ("train", "dev", "test")]
    return BM25.load(folder / "index"), *splits


@pytest.fixture(scope="module")
def compiled(home: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    index, train, dev, _ = home
    program = RAISF(index, k=3)
    program.set_lm(connect("pocket"))
    work = tmp_path_factory.mktemp("work")
    return compile(program, trainset=train, valset=dev, how="probe", labels="gold", work=work, progress=False)


@pytest.fixture
def artifact(compiled: Any, tmp_path: Path) -> Path:
    save(compiled, tmp_path / "a")
    return tmp_path / "a"


def said(program: Any, name: str = "know") -> dict[str, float]:
    inputs = {"question": "Who is the mayor of Belrin?"}
    if name == "relevant":
        inputs["passage"] = "Belrin | Its mayor is Oda Hill."
    predictor = getattr(program, name)
    with dspy.context(adapter=adapter_for(predictor.lm)):
        return predictor(**inputs).probabilities


def test_probes_rank_unseen_questions_and_passages_better_than_chance(compiled: Any, home: Any) -> None:
    for judge, least in (("know", 0.7), ("relevance", 0.8)):
        report = judgements_of(compiled, judge, home[3], labels="gold", progress=False).report()  # type: ignore[arg-type]
        assert report.scores["auroc"].low > 0.5 and report.scores["auroc"].value > least


def test_instructions_that_a_probe_was_fitted_to_are_not_rewritten(compiled: Any) -> None:
    assert not {"know", "relevant"} & {*instructed(compiled)}


def test_the_report_says_what_was_chosen_on_how_many_rows(compiled: Any) -> None:
    report = compiled.compile_report
    assert report["how"] == "probe" and report["trained"] == "know, relevant"
    assert report["missing"] == {"decompose": "it gives no label"}
    for name, labels in (("know", {"know", "unknown"}), ("relevant", {"relevant", "irrelevant"})):
        made = report["predictors"][name]
        assert made["source"] == "gold" and set(made["rows"]["train"]) == labels
        assert 1 <= made["layer"] <= 4 and made["C"] > 0 and made["seconds"] > 0
        found = made["validation"]
        assert found["n"] == sum(made["rows"]["validation"].values())
        assert found["low"] <= found["auroc"] <= found["high"]
    assert compiled.know.lm.probe and compiled.decompose.lm.probe is None
    assert compiled.know.lm.base_engine is compiled.decompose.lm.base_engine


@pytest.mark.slow
def test_the_thresholds_of_probes_can_be_calibrated_and_the_program_answers(compiled: Any, home: Any) -> None:
    made = compile(compiled, trainset=home[1], valset=home[2][:12], how="thresholds", labels="gold", progress=False)
    assert "threshold" in made.compile_report["calibration"]["judges"]["know"]
    assert made.know.lm.probe == compiled.know.lm.probe
    node = made(question=home[3][0].question).trace.root
    assert 0 < node.know.probability < 1


def test_an_artifact_judges_elsewhere_as_it_did_here(compiled: Any, artifact: Path, tmp_path: Path) -> None:
    program: Any = load(artifact.rename(tmp_path / "moved"))
    for name in ("know", "relevant"):
        assert getattr(program, name).lm.probe == tmp_path / "moved" / "adapters" / name
        assert said(program, name) == pytest.approx(said(compiled, name), abs=1e-6)
    manifest = read_json(tmp_path / "moved" / "manifest.json")
    assert manifest["format"] == 3 and manifest["weights"]["know"]["kind"] == "probe"
    assert sum(path.stat().st_size for path in (tmp_path / "moved" / "adapters" / "know").iterdir()) < 10_000
    assert "cannot serve a probe" in (tmp_path / "moved" / "README.md").read_text()
    save(program, tmp_path / "moved")  # over itself
    assert said(load(tmp_path / "moved")) == said(program)


def test_the_format_of_artifacts_without_probes_stays(compiled: Any, tmp_path: Path) -> None:
    plain = RAISF(compiled.retriever)
    plain.set_lm(connect("pocket"))
    save(plain, tmp_path / "plain")
    assert read_json(tmp_path / "plain" / "manifest.json")["format"] == 2


def test_a_damaged_artifact_is_told(artifact: Path) -> None:
    states = artifact / "adapters" / "know" / STATES
    kept = states.read_bytes()
    states.write_bytes(kept[:-4] + b"\0\0\0\1")
    with pytest.raises(InputError, match=r"is damaged \(adapters/know has changed since it was saved"):
        load(artifact)
    states.unlink()
    with pytest.raises(InputError, match=r"is damaged \(no probe at"):
        load(artifact)
    states.write_bytes(kept)
    manifest = read_json(artifact / "manifest.json")
    manifest["weights"]["know"]["kind"] = "lora"
    (artifact / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match=r"adapters/know is not of the kind lora"):
        load(artifact)
    (artifact / "adapters" / "know" / PROBE).unlink()
    with pytest.raises(InputError, match="is damaged"):
        load(artifact)


def test_no_server_gives_a_probe(artifact: Path) -> None:
    with pytest.raises(InputError, match=r"has a probe for 'know', which reads hidden states, .*leave out --api-base"):
        load(artifact, api_base="http://127.0.0.1:9/v1")


def test_another_base_is_refused_and_the_same_one_elsewhere_is_taken(
    artifact: Path, makers: Any, tmp_path: Path
) -> None:
    from raisf.lm import pocket

    elsewhere = shutil.copytree(pocket.path(), tmp_path / "elsewhere")
    program: Any = load(artifact, lm=connect(f"local/{elsewhere}", adapter="pocket"))
    assert program.know.lm.base.startswith(f"local/{elsewhere}#")
    program = load(artifact, lm=connect(f"local/{makers.make_llama(tmp_path / 'llama')}"))
    assert program.know.lm.base.startswith("local/pocket#")  # its own; the others ask the one given
    assert program.compose.lm.base.startswith(f"local/{tmp_path}")


@pytest.mark.slow
def test_a_second_compile_finds_what_the_first_has_fitted(
    compiled: Any, home: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = RAISF(home[0], k=3)
    program.set_lm(connect("pocket"))
    monkeypatch.setattr(optimizer, "fit_probe", None)
    options: Any = {"labels": "gold", "work": compiled.know.lm.probe.parent, "progress": False}
    again = compile(program, trainset=home[1], valset=home[2], how="probe", **options)
    assert again.know.lm.model == compiled.know.lm.model
    assert again.compile_report["resumed"] and not compiled.compile_report["resumed"]
    torn = shutil.copytree(options["work"], tmp_path / "torn")
    (torn / compiled.know.lm.probe.name / "probe.safetensors").write_bytes(b"torn")
    with pytest.raises(TypeError, match="not callable"):  # it would be fitted again
        compile(program, trainset=home[1], valset=home[2], how="probe", **{**options, "work": torn})


# Modules of the user's own


class Even(dspy.Signature):
    """Say whether the number is even."""

    number: int = dspy.InputField()
    even: bool = dspy.OutputField()


class Sorting(dspy.Module):
    def __init__(self) -> None:
        super().__init__()
        self.size, self.even = dspy.Predict(Count), dspy.Predict(Even)
        self.name = dspy.Predict("number: int -> name: str")

    def forward(self, number: int) -> dspy.Prediction:
        kind = self.size(number=number).verdict, self.even(number=number).even
        return dspy.Prediction(kind=kind, name=self.name(number=number).name)


def sorts(fields: dict[str, Any]) -> dict[str, Any]:
    number = int(fields["number"])
    return {"verdict": "small" if number < 50 else "large", "even": number % 2 == 0, "name": f"n{number}"}


def numbers(*given: int) -> list[dspy.Example]:
    return [dspy.Example(number=n, right=True).with_inputs("number") for n in given]


@pytest.fixture
def sorting() -> Sorting:
    program = Sorting()
    program.set_lm(ScriptedLM(sorts))
    return program


@pytest.fixture(scope="module")
def llama(makers: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """It reads a number by its digits."""
    return makers.make_llama(tmp_path_factory.mktemp("llama"))


def fit(program: Any, base: Any, **options: Any) -> Any:
    sets: Any = {"trainset": numbers(*range(10, 80)), "valset": numbers(*range(80, 98), *range(1, 10))}
    given = {"metric": lambda *_: 1.0, "progress": False, **sets, **options}
    return compile(program, how="probe", base=base, **given)


def test_literals_and_bools_of_a_module_learn_from_right_runs(sorting: Sorting, llama: Path, tmp_path: Path) -> None:
    made = fit(sorting, LocalLM(f"local/{llama}"))
    report = made.compile_report
    assert report["predictors"].keys() == {"size", "even"} and report["missing"] == {"name": "it gives no label"}
    assert set(report["predictors"]["even"]["rows"]["train"]) == {"true", "false"}
    assert report["runs"]["train"] == {"made": 70, "failed": 0, "wrong": 0}
    assert made.name.lm is sorting.name.lm
    # Asked by DSPy's own adapter, as in training: what it says is the probe's.
    assert sum(made.even(number=n).even == (n % 2 == 0) for n in range(10, 80)) > 50
    save(made, tmp_path / "a")
    lm: Any = sorting.name.lm
    loaded: Any = load(tmp_path / "a", lm=lm, program=Sorting)
    assert [loaded(number=n).kind for n in range(20)] == [made(number=n).kind for n in range(20)]


def test_labels_that_weigh_nothing_are_told() -> None:
    asked = optimizer._Asked([], ["yes", "no"], [0, 1, 1], ["a", "b", "c"], [1.0, 0.0, 0.0])
    lm: Any = SimpleNamespace(hidden=lambda requests, layers: [np.ones((1, 4))] * 3)
    with pytest.raises(InputError, match="the rows of 'no' together weigh nothing"):
        asked.states(lm, [1], "know")


def test_what_cannot_have_a_probe_is_told(sorting: Sorting, llama: Path, makers: Any, tmp_path: Path) -> None:
    base, teacher = LocalLM(f"local/{llama}"), sorting.deepcopy()
    few = numbers(*range(41, 60, 2))[:9]
    teacher.set_lm(ScriptedLM(sorts))
    with pytest.raises(InputError, match=r"'name' gives no label: a probe is for"):
        fit(sorting, base, predictors=["name"])
    with pytest.raises(InputError, match="is elsewhere: give a base"):
        fit(sorting, None)
    with pytest.raises(InputError, match="is an encoder-decoder"):
        fit(sorting, LocalLM(f"local/{makers.make_t5(tmp_path / 't5')}"))
    with pytest.raises(InputError, match=r"'size' asks .* for a written verdict"):
        fit(sorting, LocalLM(f"local/{llama}", adapter="chat"))
    with pytest.raises(InputError, match=r"needs train rows of each label \(small, large\), found .* of small"):
        fit(sorting, base, predictors="size", trainset=numbers(*range(10, 20)), valset=numbers(7, 90))
    with pytest.raises(InputError, match=r"no train rows .* 'size': of 9 runs 0 failed and 9 were wrong"):
        fit(sorting, base, predictors="size", metric=lambda *_: 0.0, trainset=few)
    said = base.adapter.format_finetune_data(Count, [], {"number": 3}, {"verdict": "small"})
    lesson = [TrainingRow(said["messages"])]
    adapter = train(base, lesson, lesson, tmp_path / "work", Training(epochs=1, rank=2), progress=False)
    sorting.size.lm = base.with_weights(adapter)
    with pytest.raises(InputError, match="'size' has a LoRA adapter, and a probe reads the plain base"):
        fit(sorting, None, predictors=["size"], teacher=teacher)
    sets: Any = {"trainset": few, "valset": numbers(*range(30, 70, 6))}
    assert fit(sorting, base, predictors=["size"], teacher=teacher, **sets).size.lm.probe  # which says that it may go


# The command line


def test_options_that_are_no_probes_are_refused() -> None:
    from raisf.commands.compile import compile_command

    asked = ["--train", "t", "--dev", "d", "--out", "o"]
    for how, given, message in (
        ("probe", ["--epochs", "3"], "--epochs is for --how weights or both, or for outcome --by weights: leave"),
        ("probe", ["--full"], "--full is for --how weights or both"),
        ("probe", ["--strategy", "gepa"], "--strategy) is for how='prompts'"),
        ("prompts", ["--rows", "3"], "--rows is for --how weights, probe, outcome or both"),
        ("prompts", ["--train-predictors", "all"], "--train-predictors is for --how weights, probe or both, or for"),
    ):
        result = CliRunner().invoke(compile_command, [*asked, "--how", how, *given])
        assert result.exit_code and message in f"{result.output}{result.exception}"


def test_options_of_a_probe_reach_it() -> None:
    none: Any = dict.fromkeys(("layers", "learning_rate", "epochs", "batch_size", "rank", "processes"))
    choice = WeightsChoice(base="pocket", train_predictors="know, relevant", rows=50, full=False, go_on=False, **none)
    wanted = {"base": "pocket", "predictors": ["know", "relevant"], "rows": 50, "seed": 3}
    assert choice.options("probe", None, 3) == wanted
