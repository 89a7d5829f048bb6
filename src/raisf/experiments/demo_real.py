"""The demo's journey on real text: the almanac's articles and questions, and a small Llama that knows some of it.

The answerers are what ships compiled for that Llama; the judges begin with nothing, and are compiled on the almanac
both ways. So what differs between the rows is what the judges have learnt, and from what.
"""

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raisf.experiments.comparing import compare
from raisf.experiments.demo import SHOWN, DemoResult, drop_stale, make_index, result_of, step
from raisf.experiments.learning import lend
from raisf.experiments.opening import open_program
from raisf.experiments.real_rows import BUDGET, MOST_TOKENS, SMOLLM2, artifact_folder
from raisf.utils.errors import InputError
from raisf.utils.files import read_jsonl, sha256_file, write_jsonl

if TYPE_CHECKING:
    from collections.abc import Mapping

    from raisf.reports.report import ComparisonReport
    from raisf.retrieval.index import EngineName

# What is compared, in this order; the last one as it ships, its judges trained on other sets.
SYSTEMS = ("direct", "rag", "zero-shot", "prompts", "weights", "shipped")
COMPILED = ("prompts", "weights")
# Few enough for two cores and some twenty minutes.
QUESTIONS = 30
# For so many of them there is one more that no article answers: what filtering passages is worth, these show.
ANSWERABLE = 3
# Questions to learn from and to select on: candidates of prompts answer all of the latter, weights are only measured.
SPLITS = {"prompts": (164, 12), "weights": (164, 60)}
TRAINING = {"rows": 120, "layers": 15, "epochs": 3, "batch_size": 4}
# The passages of rag and RA-ISF.
K = 3


def almanac() -> Path:
    """The folder of the almanac."""
    from raisf import data

    return Path(data.__file__).parent / "almanac"


def run_real_demo(
    out: Path,
    *,
    questions: int = QUESTIONS,
    engine: "EngineName" = "colbert",
    begin: Path | None = None,
    lm: str = SMOLLM2,
    training: "Mapping[str, int] | None" = None,
) -> DemoResult:
    """Indexes the almanac, compiles RA-ISF's judges on it both ways, and compares them with what they must beat.

    Args:
        out: A folder for everything that is made; what an earlier run left there is used.
        questions: How many test questions are answered, besides some that no article answers.
        engine: The index's, "colbert" or "bm25".
        begin: The artifact whose answerers are used; None: the one that ships, if there is one.
        lm: The language model that `begin` was compiled for.
        training: Rows a judge, epochs and batch size; `TRAINING` if None.

    Raises:
        InputError: The language model's weights are not here; the message says how to get them.
    """
    from raisf.lm.connect import connect

    opened: Any = connect(lm, max_tokens=MOST_TOKENS)  # before anything is made
    begin, training = begin or _shipped(), training or TRAINING
    index, artifacts = out / f"index-{engine}", {name: out / f"{name}-{engine}" for name in SYSTEMS}
    made_from = {name: sha256_file(almanac() / f"{name}.jsonl") for name in ("corpus", "train", "dev")}
    made_from |= {how: list(counts) for how, counts in SPLITS.items()}
    made_from |= {"lm": opened.model, "begin": sha256_file(begin / "manifest.json") if begin else None, **training}
    out.mkdir(parents=True, exist_ok=True)
    drop_stale(out, made_from, "index", *SYSTEMS)
    if begin is None:
        del artifacts["shipped"]
    test = _few(out, "test", questions, unanswerable=questions // ANSWERABLE)
    corpus = almanac() / "corpus.jsonl"
    articles = f"{sum(1 for _ in read_jsonl(corpus))} articles about the real world"
    make_index(f"1. Index the almanac, {articles}, with {engine}", corpus, index, engine)
    _make_students(begin, opened, index, artifacts)
    for how in COMPILED:
        files = [_few(out, split, n) for split, n in zip(("train", "dev"), SPLITS[how], strict=True)]
        _compile(how, artifacts, files, out / "work", training)
    folder = out / f"report-{engine}"
    return result_of(_compare(artifacts, test, folder, begin), folder, artifacts[SHOWN])


def _shipped() -> Path | None:
    """What ships compiled for SmolLM2; None where this installation lacks it, which the demo then says."""
    try:
        return artifact_folder(SMOLLM2)
    except InputError:
        return None


def _few(out: Path, split: str, n: int, unanswerable: int = 0) -> Path:
    """The first questions of a split, and some unanswerable, as a file: the commands shown can be given by hand."""
    path = out / f"{split}-{n}.jsonl"
    wanted = {split: n, "unanswerable": unanswerable}
    files = {name: read_jsonl(almanac() / f"{name}.jsonl") for name in wanted}
    write_jsonl(path, [row for name, rows in files.items() for row in itertools.islice(rows, wanted[name])])
    return path


def _make_students(begin: Path | None, lm: Any, index: Path, artifacts: dict[str, Path]) -> None:
    """The programs that are not compiled here, as artifacts: their answerers trained, their judges not."""
    from raisf.optimize.artifact import load, save
    from raisf.optimize.demonstrations import judges
    from raisf.programs.registry import build
    from raisf.retrieval.index import open_index

    whose = f"the answerers that ship ({begin})" if begin else f"{lm.model} itself, since no compiled program ships"
    if not step(
        f"2. Begin with judges that have learnt nothing; what answers is {whose}",
        done=all(path.exists() for name, path in artifacts.items() if name not in COMPILED),
    ):
        return
    kinds = {"direct": ("direct", {}), "rag": ("rag", {"k": K}), "zero-shot": ("ra-isf", {"k": K, **BUDGET})}
    retriever = open_index(index)
    lender: Any = load(begin, retriever=retriever) if begin else None
    for name, (system, options) in kinds.items():
        program: Any = build(system, retriever, **options)
        program.set_lm(lm)
        if lender:
            lend(program, lender, {name for name, _ in lender.named_predictors()} - {*judges(program)})
        if not artifacts[name].exists():
            save(program, artifacts[name])
    if begin and not artifacts["shipped"].exists():
        save(open_program(str(begin), index=index, k=K, **BUDGET), artifacts["shipped"])


def _compile(
    how: str, artifacts: dict[str, Path], files: list[Path], work: Path, training: "Mapping[str, int]"
) -> None:
    from raisf.data.questions import load_questions
    from raisf.lm.finetune.training import Training
    from raisf.optimize.artifact import save
    from raisf.optimize.compile import compile

    (train, dev), student, artifact = files, artifacts["zero-shot"], artifacts[how]
    made = {
        "prompts": "few-shot prompts for the judges, from the training questions",
        "weights": "a LoRA adapter for each judge, trained on the training questions",
    }
    told = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in training.items())
    number, options = {"prompts": (3, ""), "weights": (4, f" {told}")}[how]
    if not step(
        f"{number}. Compile RA-ISF to {how}: {made[how]}",
        f"raisf compile --how {how}{options} --program {student} --train {train} --dev {dev} --out {artifact}",
        done=artifact.exists(),
    ):
        return
    given: dict[str, Any] = {}
    if how == "weights":
        given["rows"] = training["rows"]
        settings: dict[str, Any] = {name: value for name, value in training.items() if name != "rows"}
        given["training"] = Training(**settings)
    trainset, valset = load_questions(train), load_questions(dev)
    save(compile(open_program(str(student)), trainset=trainset, valset=valset, how=how, work=work, **given), artifact)


def _compare(artifacts: dict[str, Path], test: Path, out: Path, begin: Path | None) -> "ComparisonReport":
    from raisf.data.questions import load_questions

    examples = load_questions(test)
    listed = ",".join(f"{name}={path}" for name, path in artifacts.items())
    step(
        f"5. Answer {len(examples)} test questions with each of {len(artifacts)} systems, and compare",
        f"raisf compare --programs {listed} --test {test} --out {out}",
    )
    programs = {name: open_program(str(path)) for name, path in artifacts.items()}
    answers = "answered by what ships compiled" if begin else "answered by the model as it is"
    title = f"RA-ISF on the almanac, {answers}: its judges zero-shot, compiled to prompts and to weights"
    return compare(programs, examples, out, title=title, test=f"the almanac, {len(examples)} questions")
