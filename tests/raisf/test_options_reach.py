"""An option that is taken and does nothing is believed: what commands are told reaches what does the work."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raisf import cli
from raisf.commands.calibrating import CalibrationChoice
from raisf.commands.optimizing import PromptChoice
from raisf.commands.options import TeacherChoice
from raisf.optimize.optimizers.kinds_of_know import KINDS
from raisf.programs.ra_isf import RAISF
from raisf.retrieval.search.filtered import Filtered
from raisf.utils.errors import InputError

WHERE = ["--where", "title != 'nobody'"]


@pytest.fixture(scope="module")
def home(make_home: Callable[..., Path]) -> Path:
    return make_home(train=5, dev=4, test=3, entities=300)


@pytest.fixture
def reached(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Any, dict[str, Any]]]:
    """`reached(worker, *argv)`: the arguments that a command calls its worker with, which then ends it."""
    monkeypatch.chdir(tmp_path)

    def reached(worker: str, *argv: object, searches: bool = True) -> tuple[Any, dict[str, Any]]:
        found = list[tuple[Any, dict[str, Any]]]()

        def work(*args: Any, **options: Any) -> None:
            found.append((args, options))
            raise InputError("that far")

        monkeypatch.setattr(worker, work)
        index = ["--index", home / "index", "--lm", "pocket"] if searches else []
        assert cli.main([*map(str, (*argv, *index))]) != 0
        (one,) = found
        return one

    return reached


def split(home: Path, *names: str) -> list[object]:
    return [part for name in names for part in (f"--{name}", home / f"world/{name}.jsonl")]


def test_of_a_data_set(reached: Any, home: Path) -> None:
    argv = ["dataset", "nq", "--from", home / "world/test.jsonl", "--split", "dev", "--n", 3, "--seed", 5, "--out", "o"]
    _, options = reached("raisf.data.datasets.files.write_dataset", *argv, searches=False)
    assert options["n"] == 3 and options["seed"] == 5 and [*options["files"]] == ["dev"]


def test_of_an_evaluation(reached: Any, home: Path) -> None:
    argv = ["eval", "--program", "rag", *split(home, "test"), "--limit", 2, "--threads", 3]
    (program, examples, _), options = reached("raisf.evaluation.runner.evaluate", *argv)
    assert len(examples) == 2 and options == {"threads": 3, "fresh": False, "cache": False}
    assert program.get_lm().cache is False, "seconds and cost are those of the program"
    _, options = reached("raisf.evaluation.runner.evaluate", *argv, "--fresh", "--cache")
    assert options == {"threads": 3, "fresh": True, "cache": True}


@pytest.mark.parametrize("labels", ["model", "gold"])
def test_of_a_judge_alone(reached: Any, home: Path, labels: str) -> None:
    argv = ["eval", "--module", "know", *split(home, "test"), "--labels", labels]
    _, options = reached("raisf.commands.eval_judge.judge_alone", *argv)
    assert options["labels"] == labels


def test_of_rows_for_the_judges(reached: Any, home: Path) -> None:
    argv = ["collect", *split(home, "train", "dev", "test"), *WHERE, "--k", 2, "--relevance", "listwise", "--out", "o"]
    (program, train, _), options = reached("raisf.optimize.judges.collect.collect", *argv, "--labels", "gold")
    assert isinstance(program.retriever, Filtered) and (program.k, program.relevance) == (2, "listwise")
    held_out = {name: len(questions) for name, questions in options["others"].items()}
    assert len(train) == 5 and held_out == {"dev": 4, "test": 3} and options["labels"] == "gold"


def test_of_a_comparison(reached: Any, home: Path) -> None:
    argv = ["compare", "--programs", "a=rag", *split(home, "test"), *WHERE, "--limit", 2, "--k", 2, "--out", "o"]
    (programs, examples, _), options = reached("raisf.experiments.comparing.compare", *argv, "--labels", "gold")
    assert isinstance(programs["a"].retriever, Filtered) and programs["a"].k == 2 and len(examples) == 2
    assert options["labels"] == "gold" and options["judges"] is True
    assert reached("raisf.experiments.comparing.compare", *argv, "--no-judges")[1]["judges"] is False


def test_of_compiling(reached: Any, home: Path) -> None:
    argv = ["compile", *split(home, "train", "dev"), "--labels", "gold", "--seed", 3, "--threads", 2, "--out", "o"]
    _, options = reached("raisf.optimize.compile.optimizer_named", *argv)
    assert options == {"labels": "gold", "seed": 3, "threads": 2}


class Unchanged:
    """A way of compiling that leaves a program as it is."""

    work, metric = "runs", None

    def bases(self, program: Any) -> dict[str, Any]:
        return {}

    def compile(self, program: Any, **_: Any) -> Any:
        program.compile_report = {}
        return program


@pytest.mark.parametrize(
    ("fit", "option"),
    [
        ("raisf.optimize.optimizers.calibrate.Calibrate.compile", "--calibrate"),
        ("raisf.optimize.confidence.fit_confidence", "--calibrate-confidence"),
    ],
)
def test_what_is_fitted_afterwards_is_fitted_on_dev(
    reached: Any, home: Path, monkeypatch: pytest.MonkeyPatch, fit: str, option: str
) -> None:
    monkeypatch.setattr("raisf.optimize.compile.optimizer_named", lambda *_, **__: Unchanged())
    monkeypatch.setattr("raisf.optimize.confidence.check_enough", lambda valset: None)
    _, given = reached(fit, "compile", *split(home, "train", "dev"), option, "--out", "o")
    assert len(given["valset"]) == 4


@pytest.mark.parametrize(
    ("aim", "kinds", "price", "how", "calibrates"),
    [
        (None, None, None, "prompts", None),
        ("accuracy", None, None, "prompts", ("accuracy", (), 0.01)),
        ("cost", None, 0.2, "prompts", ("cost", (), 0.2)),
        (None, ("truth",), None, "prompts", ("answer", ("truth",), 0.01)),
        (None, (), None, "prompts", ("answer", KINDS, 0.01)),
        ("answer", None, 0.2, "outcome", ("answer", (), 0.01)),  # the price is for the outcomes alone
    ],
)
def test_of_calibrating(aim: Any, kinds: Any, price: Any, how: str, calibrates: Any) -> None:
    made = CalibrationChoice(aim, kinds, price, None, False).optimizer(how, "gold", 2)
    assert (made and (made.aim, made.know, made.call_price)) == calibrates
    assert made is None or (made.labels, made.threads) == ("gold", 2)


@pytest.mark.parametrize(
    ("aim", "kinds", "asked", "own", "tried"),
    [
        ("answer", None, None, {}, ("verbal", "confidence")),
        ("cost", None, None, {}, ("verbal", "confidence")),
        ("accuracy", None, None, {}, ()),
        (None, None, None, {}, ()),
        ("answer", ("truth",), None, {}, ()),
        ("answer", None, "verbal", {}, ()),
        ("answer", None, None, {"know": "truth"}, ()),
        ("answer", None, None, {"use_know": False}, ()),
    ],
)
def test_two_kinds_of_know_are_tried_where_nobody_has_chosen(
    aim: Any, kinds: Any, asked: Any, own: dict[str, Any], tried: Any
) -> None:
    assert CalibrationChoice(aim, kinds, None, None, False).by_default(RAISF(None, **own), asked) == tried


def test_of_tuning_a_retriever(reached: Any, home: Path) -> None:
    argv = ["dense", "tune", *split(home, "train", "dev"), "--seed", 3, "--k", 7, "--out", "o"]
    _, options = reached("raisf.optimize.optimizers.lsr.tune_retriever", *argv)
    assert (len(options["trainset"]), len(options["valset"])) == (5, 4)
    assert (options["tuning"].seed, options["tuning"].k) == (3, 7)


@pytest.mark.parametrize("of", [TeacherChoice, PromptChoice])
def test_another_lm_is_asked_at_the_address_that_is_given_for_it(of: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the provider's own it would read the questions and passages of who named a machine of her own."""
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    url = "http://127.0.0.1:9/v1"
    if of is TeacherChoice:
        lm = TeacherChoice("openai/x", url).open()
    else:
        lm = PromptChoice("gepa", None, None, None, "openai/x", url).options["reflection_lm"]
    assert lm.api_base == url
