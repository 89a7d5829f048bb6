"""REPLUG's LSR: a retriever learns from an LM which passages help it to the answer; the LM stays as it is."""

import functools
import math
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dspy
from dspy.teleprompt import Teleprompter

from raisf.evaluation.examples import check_answered, gold_answers, question_id
from raisf.evaluation.identity import digest, weights_of
from raisf.lm.adapter import CompactAdapter
from raisf.lm.local.model import LocalLM
from raisf.optimize.copying import copy_of
from raisf.optimize.optimizers.base import earlier
from raisf.optimize.overlap import check_disjoint, learnt_from
from raisf.optimize.within import program_within
from raisf.programs.program import Program
from raisf.retrieval.engines.dense import Dense
from raisf.retrieval.index import open_folder
from raisf.retrieval.passage import Passage, called_by
from raisf.retrieval.store.manifest import INDEX
from raisf.retrieval.training.query_tuning import PUBLISHED, QueryStudent
from raisf.utils import schedule
from raisf.utils.checks import check, check_least, is_number
from raisf.utils.errors import InputError
from raisf.utils.files import check_replaceable
from raisf.utils.journal import Journal
from raisf.utils.progress import progress_bar
from raisf.utils.text import composed

if TYPE_CHECKING:
    import torch

WARM_UP = 0.1
"""The share of the steps in which the learning rate rises, the paper's; then it falls to 0 in a straight line."""

FIRST = 5
"""Passages among which a gold one is looked for in the report: the programs' usual k."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """How the retriever is tuned. The defaults are the paper's, but for its batch of 64, its 25,000 steps and Adam.

    Args:
        k: Passages a question that the LM tells apart.
        epochs: At most; before each one the passages are searched anew. The best epoch's weights are kept.
        batch_size: Questions a step.
        learning_rate: AdamW's, at its highest.
        retrieval_temperature: Divides the retrieval scores: gamma.
        lm_temperature: Divides the LM's likelihoods: beta.
        seed: Of the order of the questions and of dropout.

    Raises:
        InputError: A number that makes no sense.

    Source: Shi et al. 2023, arXiv 2301.12652, section 4.
    """

    k: int = 20
    epochs: int = 5
    batch_size: int = 16
    learning_rate: float = 2e-5
    retrieval_temperature: float = 0.1
    lm_temperature: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        check_least(self, k=2, epochs=1, batch_size=1)
        for name in ("learning_rate", "retrieval_temperature", "lm_temperature"):
            value = getattr(self, name)
            check(name, value, is_number(value) and 0 < value <= 10, "a number above 0, 10 at most")


@dataclass(kw_only=True, eq=False)
class TuneRetriever(Teleprompter):
    """Teaches a dense retriever to prefer the passages that make the gold answer likely for the student's LM (LSR).

    The encoder of queries is trained so that its scores over the top k passages, as a distribution, come near that of
    the likelihoods (KL divergence). Passages keep their vectors. A likelihood is that of the answer with the passage as
    its evidence, the mean over its tokens, so that long answers are not lost in rounding. The LM is asked once for each
    pair of question and passage; a second call after a kill goes on from what it said.

    The epoch is kept, the untuned one included, in which the passages found for the validation questions make their
    answers the likeliest.

    Args:
        checkpoint: The folder for the tuned model; `raisf index --engine dense --checkpoint` takes it.
        index: The folder for the same index under that model, whose passages need not be encoded again.
        tuning: How; the defaults if None.
        work: Where the LM's likelihoods lie until all is done.
        progress: Show bars on stderr.
    """

    checkpoint: Path | str
    index: Path | str
    tuning: Tuning | None = None
    work: Path | str = "runs/compile"
    progress: bool = True

    def compile(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        student: dspy.Module,
        *,
        trainset: Sequence[dspy.Example],
        teacher: Any = None,
        valset: Sequence[dspy.Example] | None = None,
    ) -> Any:
        """A copy of the student over the tuned index.

        Its `compile_report` has `curve`, a point an epoch: train_kl (nats), and on the validation questions kl,
        likelihood (the one to be expected of a passage), and found (the share with a gold passage among the first 5,
        where questions have gold_pids); best_epoch; lm_calls, those of an earlier call that was stopped included.

        Args:
            student: With `answer_from`, whose LM in this process is asked, and a dense index; or a module that contains
                such a program. It stays as it is.
            trainset: Questions with answers to learn from.
            teacher: Not looked at.
            valset: Others, to choose the epoch by.

        Raises:
            InputError: No dense index, an LM without log-probabilities, a question without answer, sets that overlap or
                are empty, folders that hold other things.
        """
        tuning, valset = self.tuning or Tuning(), valset or []
        program = program_within(student, Program, f"{type(student).__name__} holds no program of ours to tune")
        dense = program.retriever
        if not isinstance(dense, Dense):
            raise InputError(
                "only a dense index can be tuned so: make one (raisf index DOCS --engine dense) and give that"
            )
        reader = _Reader(program)
        for examples, name in ((trainset, "training"), (valset, "validation")):
            if not examples:
                raise InputError(f"the {name} set is empty: give questions with answers")
            check_answered(examples, name)
        check_disjoint(trainset, {"validation": valset})
        made = [Path(folder).resolve() for folder in (self.checkpoint, self.index)]
        if made[0].is_relative_to(made[1]) or made[1].is_relative_to(made[0]):
            raise InputError(
                f"the checkpoint {self.checkpoint} and the index {self.index} would lie in one folder: give another"
            )
        check_replaceable(self.checkpoint, *PUBLISHED)
        check_replaceable(self.index, *INDEX)
        learner = QueryStudent(dense, tuning.learning_rate)
        with Journal.alone(self.work, "lsr", reader.identity([*trainset, *valset])) as reader.journal:
            curve, best_epoch = self._tune(learner, reader, trainset, valset)
            report = {
                "how": "retriever",
                "tuning": asdict(tuning),
                "lm": reader.lm.model,
                "trainset": len(trainset),
                "valset": len(valset),
                "curve": curve,
                "best_epoch": best_epoch,
                "lm_calls": len(reader.asked),
            }
            learner.reindex(
                learner.publish(self.checkpoint, {**report, "queries": learnt_from(dense, trainset, valset)}),
                self.index,
            )
            reader.journal.close()
        tuned: Any = copy_of(student)
        program_within(tuned, Program, "").retriever = open_folder(self.index)
        tuned.compile_report = {**report, **earlier(student)}
        return tuned

    def _tune(
        self, learner: QueryStudent, reader: "_Reader", trainset: Sequence[Any], valset: Sequence[Any]
    ) -> tuple[list[dict[str, Any]], int]:
        """Teaches the learner; its curve, and the epoch that it is left at."""
        tuning = self.tuning or Tuning()
        curve: list[dict[str, Any]] = []
        best, best_epoch = learner.weights(), 0
        with progress_bar(self.progress) as bar:
            total = tuning.epochs * len(trainset) + (tuning.epochs + 1) * len(valset)
            task = bar.add_task("tuning", total=total, score="")

            def show(questions: int = 1) -> None:
                state = f"likelihood {curve[-1]['likelihood']:.3f}" if curve else ""
                bar.update(task, advance=questions, score=state)

            for epoch in range(tuning.epochs + 1):
                train_kl = _learn(learner, reader, trainset, tuning, epoch, show) if epoch else None
                curve.append({"epoch": epoch, "train_kl": train_kl, **_measure(learner, reader, valset, tuning, show)})
                if curve[-1]["likelihood"] > curve[best_epoch]["likelihood"]:
                    best, best_epoch = learner.weights(), epoch
        learner.restore(best)
        return curve, best_epoch


def tune_retriever(
    program: dspy.Module, *, trainset: Sequence[dspy.Example], valset: Sequence[dspy.Example], **options: Any
) -> Any:
    """A copy over a tuned index: `TuneRetriever(**options).compile(program, trainset=trainset, valset=valset)`."""
    return TuneRetriever(**options).compile(program, trainset=trainset, valset=valset)


def divergence(scores: "torch.Tensor", likelihoods: "torch.Tensor", tuning: Tuning) -> "torch.Tensor":
    """KL(retriever || LM) in nats `(n_queries,)`: both made distributions over the k passages `(n_queries, k)`."""
    ours = (scores / tuning.retrieval_temperature).log_softmax(-1)
    theirs = (likelihoods / tuning.lm_temperature).log_softmax(-1)
    return (ours.exp() * (ours - theirs)).sum(-1)


def _learn(
    student: QueryStudent, reader: "_Reader", trainset: Sequence[Any], tuning: Tuning, epoch: int, show: Any
) -> float:
    """Learns from all training questions once; the mean divergence in nats."""
    rng = random.Random(f"{tuning.seed}/{epoch}")
    examples = rng.sample(list(trainset), len(trainset))
    found = student.find([example.question for example in examples], tuning.k)
    likelihoods = reader.likelihoods(examples, found, student.passages, show)
    batches, total = -(-len(examples) // tuning.batch_size), 0.0
    for number in range(batches):
        part = slice(number * tuning.batch_size, (number + 1) * tuning.batch_size)
        queries = [example.question for example in examples[part]]
        step, steps = (epoch - 1) * batches + number, tuning.epochs * batches
        share = schedule.linear(step, steps, WARM_UP)
        loss = functools.partial(divergence, likelihoods=likelihoods[part], tuning=tuning)
        kl = student.step(queries, found[part], loss, share, f"{tuning.seed}/{step}")
        total += kl * len(queries)
    return round(total / len(examples), 4)


def _measure(
    student: QueryStudent, reader: "_Reader", examples: Sequence[Any], tuning: Tuning, show: Any
) -> dict[str, Any]:
    import torch

    questions = [example.question for example in examples]
    numbers = student.find(questions, tuning.k)
    likelihoods = reader.likelihoods(examples, numbers, student.passages, show)
    with torch.inference_mode():
        scores = student.scores(questions, numbers)
        shares = (scores / tuning.retrieval_temperature).softmax(-1)
        measured = {
            "kl": round(divergence(scores, likelihoods, tuning).mean().item(), 4),
            "likelihood": round((shares * likelihoods).sum(-1).mean().item(), 4),
        }
    gold = [
        any(called_by(pids, student.passages[number].pid) in pids for number in row[:FIRST])
        for example, row in zip(examples, numbers, strict=True)
        if (pids := [composed(pid) for pid in example.get("gold_pids") or [] if pid])
    ]
    return measured | ({"found": round(sum(gold) / len(gold), 4)} if gold else {})


def check_likelihoods(program: Program) -> None:
    """Makes sure that a program's LM can be asked how likely an answer is, without which no retriever is tuned.

    Raises:
        InputError: It reads no passages, or its LM is elsewhere.
    """
    _Reader(program)


class _Reader:
    """The LM that reads: how likely it finds an answer with a passage as its evidence, kept in `journal`."""

    journal: Journal

    def __init__(self, program: Program):
        self._predictor: Any = getattr(program, "answer_from", None)
        lm: Any = getattr(self._predictor, "lm", None) or dspy.settings.lm
        adapter = getattr(lm, "adapter", None)
        if self._predictor is None:
            raise InputError(f"{program.system} reads no passages: tune the retriever of replug, rag or ra-isf")
        if not isinstance(lm, LocalLM) or not isinstance(adapter, CompactAdapter) or lm.lora is not None:
            raise InputError(
                f"the likelihood of an answer is asked of an LM in the process, in the compact format and without a "
                f"LoRA adapter, and not of {getattr(lm, 'model', lm)}: give --lm pocket or --lm local/..."
            )
        self.lm, self._adapter = lm, adapter
        self.asked = set[str]()  # the published model tells how many: as many after a kill as without one

    def identity(self, examples: Sequence[Any]) -> str:
        """A digest of all that decides the likelihoods, but for the passages, which name themselves."""
        questions = sorted(map(question_id, examples))
        return digest([weights_of(self.lm), self.lm.adapter_name, self._predictor.dump_state(), questions])

    def likelihoods(
        self, examples: Sequence[Any], numbers: Sequence[Sequence[int]], passages: Sequence[Passage], show: Any
    ) -> "torch.Tensor":
        """By question and passage `(n_examples, k)`: the mean probability, geometric, of the gold answer's tokens."""
        import torch

        rows = []
        for example, row in zip(examples, numbers, strict=True):
            rows.append(self._likelihoods(example, [passages[number] for number in row]))
            show()
        return torch.tensor(rows)

    def _likelihoods(self, example: Any, passages: Sequence[Passage]) -> list[float]:
        answer = " ".join(gold_answers(example)[0].split())
        texts = [self._before(example.question, passage) for passage in passages]
        keys = [digest([text, answer]) for text in texts]
        new = {key: (text, f" {answer}") for key, text in zip(keys, texts, strict=True) if key not in self.journal}
        self.asked.update(keys)
        for key, (logprob, tokens) in zip(new, self.lm.logprobs([*new.values()]), strict=True):
            self.journal.add(key, math.exp(logprob / max(1, tokens)))
        return [self.journal.get(key) for key in keys]

    def _before(self, question: str, passage: Passage) -> str:
        """The text up to the answer: the prompt, and the whole passage in the place of the sentence that is copied."""
        signature = self._predictor.signature
        inputs = {"question": question, "passages": [passage.prompt_text]}
        outputs = {name: "" if name == "answer" else passage.text for name in signature.output_fields}
        evidence, colon, _ = self._adapter.completion(signature, outputs).rpartition(":")
        return self._adapter.prompt(signature, inputs, self._predictor.demos) + evidence + colon
