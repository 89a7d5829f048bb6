"""Changing a program that is made: its options set anew, its predictors exchanged, both taken up from DSPy's JSON."""

import inspect
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import Any, Literal, cast, get_args, get_origin

import dspy
from dspy.predict.parameter import Parameter

from raisf.evaluation.identity import code_of, digest
from raisf.utils.errors import InputError
from raisf.utils.learnt import learnt_by

# A constructor may set an option a second time; what it makes to try one out is not tried out in turn.
_trying: ContextVar[bool] = ContextVar("trying", default=False)


class OptionsState(Parameter):
    """A program's options as a parameter of the module that contains it, so that DSPy writes and reads them, too.

    Args:
        program: The `raisf.programs.program.Program` whose options they are.
    """

    def __init__(self, program: Any):
        self.program = program

    def dump_state(self, json_mode: bool = True) -> dict[str, Any]:
        """The options, and a print of each question that the program has learnt from."""
        return {**self.program.options(), "learnt_from": sorted(learnt_by(self.program))}

    def load_state(self, state: dict[str, Any]) -> None:
        """Makes the program one of these options; those that are not among them stay as they are.

        Raises:
            InputError: One cannot be used, or the program would have other predictors, whose states are not loaded.
        """
        before = asked(self.program).keys()
        take_options(self.program, state)
        if (after := asked(self.program).keys()) != before:
            raise InputError(
                f"the saved {self.program.system} has the predictors {', '.join(after)}, this one {', '.join(before)}: "
                "make it with the options that it was saved with, then load"
            )

    def reset(self) -> None:
        """Nothing: options are not learnt."""


def take_options(program: Any, state: Any) -> None:
    """Makes a program what `OptionsState.dump_state` gave of it; what a file leaves out stays as it is.

    Raises:
        InputError: It is no such state, or one of the options cannot be used.
    """
    if not isinstance(state, dict | None):  # files hold anything
        raise InputError(f"options in the saved program is {state!r:.80}: the file is damaged")
    options = dict(state or {})
    learnt = options.pop("learnt_from", None)
    program.become(options)
    if learnt is not None:
        program.learnt_from = learnt


def with_options(program: dspy.Module, state: dict[str, Any]) -> dict[str, Any]:
    """A state of a program, or of a module that contains some, that sets no options where it has none."""
    parts = {name: {} for name, part in program.named_parameters() if isinstance(part, OptionsState)}
    return parts | state


def constructors(program: Any) -> Iterator[tuple[type[Any], dict[str, inspect.Parameter]]]:
    """The classes of a program that have a constructor of their own, its own class first, and what each takes."""
    for kind in type(program).__mro__:
        if "__init__" in vars(kind) and hasattr(kind, "system"):  # from dspy.Module on they take nothing of ours
            # Of the class itself, DSPy's metaclass would show (*args, **kwargs).
            own = inspect.signature(vars(kind)["__init__"]).parameters
            yield kind, {name: parameter for name, parameter in own.items() if name != "self"}


def made_alike(program: Any, changed: dict[str, Any]) -> Any:
    """Another program of this kind over the same retriever, with some options changed.

    Where the constructor of the user's own subclass takes fewer options, wants what is no option, or decides itself
    on one that its `**options` seem to take, it is one of the class that takes most.

    Raises:
        TypeError: No constructor takes one of that name, or each wants what is no option.
        InputError: It refuses a value.
    """
    options = {**program.options(), **changed}
    able = [one for one in constructors(program) if _needed(one[1]) <= {"retriever", *options}]
    able = able or list(constructors(program))
    able.sort(key=lambda one: sum(_takes(one[1], name) for name in options), reverse=True)
    known = {name for _, others in constructors(program) for name in others}
    refused: list[TypeError] = []
    token = _trying.set(True)
    try:
        for kind, takes in able:
            retriever = {"retriever": program.retriever} if "retriever" in takes else {}
            given = {name: value for name, value in options.items() if _takes(takes, name) or name not in known}
            try:
                made = kind(**retriever, **given)
            except TypeError as error:
                refused.append(error)
                continue
            for name in options.keys() & known:
                if not _takes(takes, name):
                    setattr(made, name, options[name])
            return made
    finally:
        _trying.reset(token)
    raise refused[0]


def _needed(takes: dict[str, inspect.Parameter]) -> set[str]:
    """The parameters that must be given."""
    open_ended = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {n for n, one in takes.items() if one.default is inspect.Parameter.empty and one.kind not in open_ended}


def take_over(program: Any, was: Any, made: Any) -> None:
    """Gives a program what other options make of it: the attributes in which two of `made_alike` differ, and no others.

    Args:
        program: What changes; what it has learnt, and what it was given by hand, stays where the options leave it.
        was: Made with its options.
        made: Made with the others.
    """
    for name, value in vars(made).items():
        before, after, ours = (_held(vars(one).get(name)) for one in (was, made, program))
        if after and ours.keys() == after.keys():
            for place, predictor in after.items():
                if place not in before or shown(before[place]) != shown(predictor):
                    vars(ours[place]).update(vars(predictor))  # the object stays: DSPy, while it loads, holds on to it
        elif name not in vars(program) or before.keys() != after.keys() or _differ(vars(was).get(name), value):
            vars(program)[name] = value


def _held(value: Any) -> dict[str, dspy.Predict]:
    """The predictors in an attribute, by their places."""
    box: Any = dspy.Module()
    box.held = value
    return dict(box.named_predictors())


def _differ(one: Any, other: Any) -> bool:
    return digest(code_of(one)) != digest(code_of(other))


def _takes(takes: Mapping[str, inspect.Parameter], name: str) -> bool:
    return name in takes or any(parameter.kind is parameter.VAR_KEYWORD for parameter in takes.values())


def check_anew(program: Any, attribute: str, value: object) -> None:
    """Makes sure that an attribute of a program that is made, if it is an option, may have this value.

    Raises:
        InputError: The constructor refuses it; or other predictors than the program has go with it.
    """
    option = next((name for name, other in program.stored.items() if other == attribute), attribute)
    now = program.options()
    if _trying.get() or option not in now or (type(now[option]) is type(value) and now[option] == value):
        return  # 5.0 equals 5, and is no number of passages
    try:
        before, after = (asked(made_alike(program, changed)) for changed in ({}, {option: value}))
    except TypeError:  # a subclass whose constructor wants more than options
        return
    have = asked(program)
    name = next((name for name, fields in after.items() if before.get(name) != fields != have.get(name)), None)
    if name is not None:
        raise InputError(
            f"{option}={value!r} needs {name} of {after[name]}, and this program's is of {have.get(name, 'nothing')}: "
            f"make another, {type(program).__name__}(..., {option}={value!r})"
        )


def given_forward(module: Any) -> Any:
    """The `forward` that a module was given in the place of its class's, as by `dspy.KNNFewShot`; None for none.

    DSPy's tracing puts the class's own back as an attribute, and `dspy.syncify` gives what the module does anyway.
    """
    given = vars(module).get("forward")
    own = getattr(given, "__func__", None) is getattr(type(module), "forward", None)
    return None if own or getattr(given, "__qualname__", "").startswith("syncify.") else given


def forward_of_coroutine(program: Any, ours: type[Any]) -> Any:
    """The `forward` of the user's own that the coroutine of `ours` does the work of; None where there is none.

    A class that has an `aforward` as well does there what its `forward` does: that would then be done twice.
    """
    if (given := given_forward(program)) is not None:
        return given
    kinds = type(program).__mro__
    after = max((n for n, kind in enumerate(kinds[: kinds.index(ours)], 1) if "aforward" in vars(kind)), default=0)
    own = next(vars(kind)["forward"] for kind in kinds[after:] if "forward" in vars(kind))
    return None if own is ours.forward else own.__get__(program)


def asked(program: dspy.Module) -> dict[str, str]:
    """By predictor, its inputs and outputs."""
    return {name: shown(predictor) for name, predictor in program.named_predictors()}


def in_place_of(old: dspy.Predict, name: str, new: object) -> dspy.Predict:
    """A predictor that takes another's place: asked for the same, it gives the same in the end.

    Of a ChainOfThought it is the Predict inside.

    Raises:
        InputError: It is none, is asked for something else, or gives something else.
    """
    if isinstance(new, dspy.ChainOfThought):
        new = new.predict
    if not isinstance(new, dspy.Predict):
        raise InputError(f"{name} is {new!r}: give a dspy.Predict or dspy.ChainOfThought of {shown(old)}")
    before, now = cast(Any, old.signature), cast(Any, new.signature)
    wanted = [*before.output_fields][-1]
    kind = before.output_fields[wanted].annotation
    labels = get_args(kind) if get_origin(kind) is Literal else ()
    if wanted not in now.output_fields:
        wrong = f"has no output {wanted}"
    elif before.input_fields.keys() != now.input_fields.keys():
        wrong = f"is asked for {shown(new)}"
    elif labels and get_args(now.output_fields[wanted].annotation) != labels:
        wrong = f"gives another {wanted} than {' or '.join(map(str, labels))}"
    elif get_origin(kind) is list and get_origin(now.output_fields[wanted].annotation) is not list:
        wrong = f"gives no list of {wanted}"
    else:
        return new
    raise InputError(f"{name} {wrong}: give a dspy.Predict or dspy.ChainOfThought of {shown(old)}")


def shown(predictor: dspy.Predict) -> str:
    """A predictor's inputs and outputs, as DSPy writes a signature."""
    signature = cast(Any, predictor.signature)
    return f"{', '.join(signature.input_fields)} -> {', '.join(signature.output_fields)}"
