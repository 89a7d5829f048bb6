"""The options that several commands share; those that belong together reach a command as one value."""

import contextlib
import functools
import logging
import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import click

from raisf.commands.command import option
from raisf.commands.values import at_least, not_negative, seconds, share, switch
from raisf.evaluation import QUESTIONS, QUESTIONS_REMOTE
from raisf.experiments.opening import ZERO_SHOT, LMChoice, default_program, given, open_program
from raisf.utils.errors import InputError

logger = logging.getLogger(__name__)

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

_threads = option(
    "--threads",
    type=at_least(1),
    metavar="N",
    help=f"questions at a time; default: {QUESTIONS}, at an endpoint {QUESTIONS_REMOTE}",
)
ray_option = option(
    "--ray",
    metavar="ADDRESS",
    help="ask on the nodes of a Ray cluster: HOST:PORT of its head, ray://HOST:PORT, or auto; paths of "
    "indexes, models and artifacts must exist on every node",
)
seed_option = option("--seed", type=int, default=0, metavar="N", help="seed of every random choice; default: 0")
limit_option = option("--limit", type=at_least(1), metavar="N", help="only the first N questions")


def as_one(name: str, kind: type, *options: Decorator) -> Decorator:
    """Options, one for each field of a dataclass, that reach the command as one argument: an instance of it."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def gathered(**values: Any) -> Any:
            one = kind(**{field.name: values.pop(field.name) for field in fields(kind)})
            return function(**{name: one}, **values)

        return functools.reduce(lambda decorated, add: add(decorated), reversed(options), gathered)

    return decorate


def threads_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """--threads; what is not given follows from where the LM is."""

    @functools.wraps(function)
    def settled(**values: Any) -> Any:
        if values["threads"] is None:
            lm = LMChoice(values.get("spec"), values.get("api_base"))
            asked = [values.get("program") or "", *dict(values.get("programs") or {}).values()]
            values["threads"] = lm.at_a_time(asked)
        return function(**values)

    return _threads(settled)


def asked_on(ray: str | None, lm: LMChoice) -> contextlib.AbstractContextManager[None]:
    """As a context: questions are asked on the nodes of a cluster, if one is named."""
    if ray is None:
        return contextlib.nullcontext()
    from raisf.evaluation.cluster import on_cluster

    return on_cluster(ray, lm.limit)


def labels_option(heading: str = "options") -> Decorator:
    """--labels."""
    return option(
        "--labels",
        type=click.Choice(("model", "gold")),
        default="model",
        heading=heading,
        help="how it is found out what the LM knows: model asks it, gold takes the questions' `known` field; "
        "default: model",
    )


def index_options(heading: str) -> Decorator:
    """--index and --where: what is searched."""
    index = option(
        "--index",
        metavar="DIR",
        heading=heading,
        help="a folder made by `raisf index`, or the URL of `raisf serve-index`; default: the artifact's",
    )
    where = option(
        "--where",
        metavar="FILTER",
        heading=heading,
        help="search only the passages that satisfy it, such as: source = 'handbook.pdf'",
    )
    return lambda function: index(where(function))


def set_option(heading: str, help: str) -> Decorator:
    """--set: options of a program by their names."""
    return option("--set", "switches", type=switch, multiple=True, metavar="NAME=VALUE", heading=heading, help=help)


def set_once(switches: Sequence[tuple[str, Any]], others: Collection[str]) -> dict[str, Any]:
    """What --set gives, by name.

    Args:
        switches: The names, each with a value.
        others: The names of what other options give.

    Raises:
        InputError: An option is given twice.
    """
    names = [*others, *(name for name, _ in switches)]
    if twice := next((name for name, _ in switches if names.count(name) > 1), None):
        raise InputError(f"--set {twice}: {twice} is given twice; leave one out")
    return dict(switches)


_lm = functools.partial(option, heading="language model")
lm_options = as_one(
    "lm",
    LMChoice,
    _lm(
        "--lm",
        "spec",
        metavar="SPEC",
        help="smollm2 (SmolLM2-135M, in the process), pocket (for closed worlds), local/PATH_OR_HUB_ID, "
        "local/FILE.gguf, or a provider's model such as openai/gpt-4o-mini (its key in the environment); default: the "
        "compiled program's own, else $RAISF_LM, else pocket in a closed world and smollm2 elsewhere",
    ),
    _lm("--api-base", metavar="URL", help="an OpenAI-compatible endpoint: vLLM, SGLang, Ollama, ..."),
    _lm(
        "--adapter",
        type=click.Choice(("chat", "compact", "pocket")),
        help="how a call becomes text: chat for instructed models, compact for base models; default: what suits the LM",
    ),
    _lm(
        "--temperature",
        type=not_negative,
        metavar="T",
        help="0 takes the likeliest token, 2 is the highest; default: 0",
    ),
    _lm(
        "--max-tokens",
        type=at_least(1),
        metavar="N",
        help="longest answer, in tokens; default: the artifact's, else 256 (1024 at an endpoint, 96 in "
        "`experiment real`)",
    ),
    _lm(
        "--dtype",
        type=click.Choice(("default", "float32", "bfloat16")),
        help="precision of a model in this process; default: for models of 50 million weights or more bfloat16 if the "
        "CPU multiplies it faster, or on a GPU that in which the weights lie, else float32",
    ),
    _lm("--timeout", type=seconds, metavar="S", help="seconds that a call to an endpoint may take; default: 120"),
    _lm("--calls", type=at_least(1), metavar="N", help="LM calls at the same time; default: 32"),
    _lm(
        "--completions",
        is_flag=True,
        default=None,
        help="send the text of --adapter compact or pocket to the endpoint's /completions, to be continued as it is",
    ),
    _lm(
        "--no-probabilities",
        "probabilities",
        flag_value=False,
        default=None,
        help="have an endpoint write its verdicts, instead of asking it for the labels' probabilities",
    ),
)
"""Which language model answers and how it is spoken to; a command takes them as `lm`."""


@dataclass(frozen=True, slots=True)
class TeacherChoice:
    """Which LM labels relevance and writes decompositions where gold says nothing, as the papers do."""

    teacher: str | None
    teacher_api_base: str | None

    def open(self) -> Any:
        """The teacher; None where there is none.

        Raises:
            InputError: It cannot be opened, or an endpoint is given without it.
        """
        if self.teacher is None and self.teacher_api_base is not None:
            raise InputError("--teacher-api-base without --teacher: give openai/MODEL too")
        return LMChoice(self.teacher, self.teacher_api_base).open() if self.teacher is not None else None


teacher_options = as_one(
    "teacher",
    TeacherChoice,
    option(
        "--teacher",
        metavar="SPEC",
        help="an LM that judges retrieved passages and writes decompositions when gold has none (the paper's "
        "appendix A); when gold has some it is asked too, and their agreement is shown, as table5 shows the judges'",
    ),
    option("--teacher-api-base", metavar="URL", help="the endpoint of --teacher"),
)
"""Who labels what gold does not; a command takes them as `teacher`."""


@dataclass(frozen=True, slots=True)
class ProgramChoice:
    """Which program runs, over which index, within which limits, as the command line says it."""

    program: str | None
    index: str | None
    where: str | None
    k: int | None
    max_depth: int | None
    relevance: str | None
    max_calls: int | None
    max_seconds: float | None
    switches: tuple[tuple[str, Any], ...]
    use_know: bool | None
    use_relevance: bool | None
    use_decomposition: bool | None
    sufficiency: bool | None
    decomposition: str | None
    know: str | None
    confidence: str | None
    min_confidence: float | None
    know_threshold: float | None
    relevance_threshold: float | None

    def named(self, lm: LMChoice, questions: Sequence[Any] = ()) -> "ProgramChoice":
        """The choice with a program's name: its own, else that of `raisf.experiments.opening.default_program`."""
        return self if self.program else replace(self, program=default_program(lm, self.index, questions))

    def open(self, lm: LMChoice, *, searches: bool = True, questions: Sequence[Any] = ()) -> Any:
        """The program, ready to be asked; see `raisf.experiments.opening.open_program`."""
        options = asdict(self)
        name, index, where = (options.pop(one) for one in ("program", "index", "where"))
        switches = set_once(options.pop("switches"), given(options))
        if clash := switches.keys() & {"name", "lm", "index", "where", "searches", "about", "questions"}:
            raise InputError(f"{name} has no option {clash.pop()!r}")
        opening: dict[str, Any] = {"lm": lm, "index": index, "where": where, "questions": questions}
        return open_program(name, searches=searches, **opening, **(given(options) | switches))

    def open_to_ask(self, lm: LMChoice) -> Any:
        """The same, for who wants answers: warns of a program that is weak where one that ships is not."""
        from raisf.lm.connect import VARIABLE

        program = self.open(lm)
        named = lm.spec is not None or os.environ.get(VARIABLE, "").strip()
        if self.program == ZERO_SHOT and not named:
            compiled = default_program(lm, self.index)
            if compiled != ZERO_SHOT:
                logger.warning("%s is not compiled for %s: --program %s is", self.program, compiled, compiled)
        return program


_program = functools.partial(option, heading="program")
_judges = [
    _program(f"--no-{judge}", f"use_{judge}", flag_value=False, default=None, help=f"run without the {judge} judge")
    for judge in ("know", "relevance", "decomposition")
]
_thresholds = [
    _program(
        f"--{judge}-threshold",
        type=share,
        metavar="P",
        help=f"probability from which on the {judge} judge says {verdict}; default: 0.5, or the artifact's",
    )
    for judge, verdict in (("know", "know"), ("relevance", "relevant"))
]
program_options = as_one(
    "choice",
    ProgramChoice,
    _program(
        "--program",
        metavar="NAME",
        help="a name that `raisf programs` lists, a folder made by `raisf compile`, or package.module:Class, a "
        "dspy.Module of your own (compiled: package.module:Class@FOLDER); default: smollm2, which ships "
        "compiled, if SmolLM2 answers, else ra-isf (`raisf compile`: always ra-isf)",
    ),
    index_options("program"),
    _program("--k", type=at_least(1), metavar="N", help="passages per retrieval; default: 5, or the artifact's"),
    _program(
        "--max-depth",
        type=at_least(0),
        metavar="N",
        help="how deep sub-questions may go; default: 3, or the artifact's",
    ),
    _program(
        "--relevance",
        type=click.Choice(("pointwise", "listwise", "score")),
        help="pointwise judges each passage alone, listwise all passages in one call, score asks no LM and goes "
        "by the retriever's score, with a threshold that --calibrate fits; default: pointwise, or the artifact's",
    ),
    _program("--max-calls", type=at_least(1), metavar="N", help="LM calls per question; default: no limit"),
    _program("--max-seconds", type=seconds, metavar="S", help="seconds per question; default: no limit"),
    set_option(
        "program",
        "any other option of the program, such as use_internal=false for blendfilter; `raisf programs --json` lists "
        "them",
    ),
    *_judges,
    _program(
        "--sufficiency",
        flag_value=True,
        default=None,
        is_flag=True,
        help="ask whether the relevant passages suffice; if not, break the question down, and answer from them "
        "and the sub-answers",
    ),
    _program(
        "--decomposition",
        type=click.Choice(("at_once", "stepwise", "chains")),
        help="at_once lists all sub-questions in one call, stepwise asks for the next one, given the answers so "
        "far, chains answers first those that build on one another, and reads then; default: at_once, or the "
        "artifact's",
    ),
    _program(
        "--know",
        type=click.Choice(("verbal", "confidence", "consistency", "truth")),
        help="how the know judge decides: verbal is a verdict on the question; the others look at a draft "
        "answer: confidence is its probability, consistency the share of samples that agree with it (--set "
        "samples=5), truth a verdict on it; default: verbal, or the artifact's",
    ),
    *_thresholds,
    _program(
        "--confidence",
        type=click.Choice(("judges", "path")),
        help="how sure an answer is: judges takes the weakest judgement that led to it, path the product of all "
        "judgements and of the LM's own probabilities; default: judges, or the artifact's",
    ),
    _program(
        "--min-confidence",
        type=share,
        metavar="P",
        help="below this confidence answer unknown, and say why; default: 0",
    ),
)
"""Which program runs, over which index, within which limits; a command takes them as `choice`."""
