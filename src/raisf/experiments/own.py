"""Programs of the user's own, `package.module:Class`. She names them herself: no artifact or index can.

What `raisf compile` made of one is `package.module:Class@FOLDER`.
"""

import ast
import contextlib
import hashlib
import importlib.util
import inspect
import itertools
import operator
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from raisf.utils.errors import InputError
from raisf.utils.urls import check_no_address


def is_own(name: str) -> bool:
    """Whether a program's name is of the form package.module:Class."""
    return ":" in name and not Path(name).is_dir()


def without_index(name: str) -> InputError:
    """The error for a program that searches where no index is given."""
    return InputError(f"{name} retrieves passages: give --index DIR (made by: raisf index DOCS --out DIR)")


def artifact_name(program: str, folder: Path) -> str:
    """What `--program` calls the artifact that a program was compiled to."""
    return f"{program.partition('@')[0]}@{folder}" if is_own(program) else str(folder)


def open_artifact(name: str, lm: Any, api_base: str | None, retriever: Any, options: dict[str, Any]) -> Any:
    """The program of `package.module:Class@FOLDER`.

    Args:
        name: Just that.
        lm: The LM, instead of the artifact's; None: that.
        api_base: Where the artifact's own is served, if that is said.
        retriever: What it searches, instead of the artifact's index; None: that.
        options: Of the program's constructor: there must be none.

    Raises:
        InputError: There is no such class or artifact, or there are options.
    """
    from raisf.optimize.artifact import load

    class_name, _, folder = name.partition("@")
    if options:
        raise InputError(f"{next(iter(options))} cannot be changed: {folder} keeps the options it was compiled with")
    kind = load_class(class_name)
    program: Any = load(Path(folder), lm=lm, retriever=retriever, api_base=api_base, program=kind)
    program.source_sha256 = _source_hash(kind, class_name)
    return program


def load_class(name: str) -> type:
    """The class; its module is found in the working directory, or wherever Python finds modules.

    Raises:
        InputError: There is no such module or class, importing it fails, or it is no program.
    """
    import dspy

    check_no_address(name, "the program", "give its name, or the folder of an artifact on this machine")
    module_name, _, path = name.partition(":")
    if not all(part.isidentifier() for part in [*module_name.split("."), *path.split(".")]):
        raise InputError(f"no program {name!r}: write package.module:Class for a class of your own")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # where `python -c` would look; an installed command does not
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}."):
            raise InputError(
                f"no module {error.name!r} for the program {name}: run in the folder that holds it ({os.getcwd()} does "
                "not), or put that folder on PYTHONPATH"
            ) from error
        raise InputError(f"{name}: importing {module_name} ends with {type(error).__name__}: {error}") from error
    try:
        found = operator.attrgetter(path)(module)
    except AttributeError:
        there = [key for key, value in vars(module).items() if _is_program(value) and value.__module__ == module_name]
        listed = f"its programs are {', '.join(there)}" if there else "it has no subclass of dspy.Module"
        raise InputError(f"{module_name} ({module.__file__}) has no {path!r}: {listed}") from None
    if not _is_program(found):
        raise InputError(f"{name} is {found!r:.80}: give a subclass of dspy.Module, or of raisf.Program")
    asked = getattr(found, "forward", found.__call__)
    if asked is dspy.Module.__call__:
        raise InputError(
            f"{name} has no forward: give it forward(self, question), returning dspy.Prediction(answer=...)"
        )
    forward = inspect.signature(asked).parameters
    if "question" not in forward and all(one.kind != one.VAR_KEYWORD for one in forward.values()):
        raise InputError(f"{name}: its forward takes ({', '.join(forward)}), and is called with question=...")
    return found


def make(name: str, kind: type, open_index: Callable[[], Any], options: dict[str, Any], *, given: bool) -> Any:
    """An instance, with the retriever and the options that its constructor takes.

    Args:
        name: As the user wrote it.
        kind: The class.
        open_index: Gives the retriever.
        options: Its constructor's, by name.
        given: Whether the user gave an index.

    Raises:
        InputError: The constructor has no such option, needs one that was not given, or fails.
    """
    parameters = _parameters(kind)
    takes_any = any(one.kind == one.VAR_KEYWORD for one in parameters.values())
    known, searching = fitting(kind)
    if not takes_any and (unknown := sorted(options.keys() - known)):
        has = f"its constructor has {', '.join(sorted(known))}" if known else "its constructor has no options"
        raise InputError(f"{name} has no option {unknown[0]!r}: {has}")
    if given and not searching:
        raise InputError(f"{name} has no parameter `retriever`: leave --index out, or let its constructor take one")
    options = dict(options)
    if searching and (given or parameters["retriever"].default is inspect.Parameter.empty):
        if not given:
            raise without_index(name)
        options["retriever"] = open_index()
    missing = [key for key in known - options.keys() if parameters[key].default is inspect.Parameter.empty]
    if missing:
        raise InputError(f"{name} needs {missing[0]!r}: give --set {missing[0]}=VALUE, or give it a default")
    try:
        program = kind(**options)
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{name} cannot be made: {type(error).__name__}: {error}") from error
    # Answers are kept by what gave them: after a change in her code they are asked for again.
    program.source_sha256 = _source_hash(kind, name)
    return program


def fitting(kind: type, *, compiled: bool = False) -> tuple[set[str], bool]:
    """The options that a class's constructor names, a compiled program's none, and whether it takes a retriever."""
    named = {key for key, one in _parameters(kind).items() if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)}
    return set() if compiled else named - {"retriever"}, "retriever" in named


def _parameters(kind: type) -> dict[str, inspect.Parameter]:
    found = dict(inspect.signature(kind.__init__).parameters)
    found.pop("self", None)
    return found


def _is_program(value: Any) -> bool:
    import dspy

    return isinstance(value, type) and issubclass(value, dspy.Module)


def _source_hash(kind: type, named: str) -> str:
    """A hash of the class's code: of its module, of the one that she named, and of all of hers that these import.

    Imports are read, not run: so those inside functions count, and what another program has loaded does not. One whose
    name is made at run time is not seen.
    """
    from raisf.evaluation.values import is_users
    from raisf.utils.files import sha256_file

    found, waiting = dict[str, Path](), {kind.__module__, named.partition(":")[0]}
    packages = {name.partition(".")[0] for name in waiting}
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        file = Path(inspect.getfile(kind)) if name == kind.__module__ else _file_of(name)
        if file is not None and (name.partition(".")[0] in packages or is_users(name, str(file))):
            found[name] = file
            waiting.update(_imported(name, file))
    return hashlib.sha256("".join(sorted(set(map(sha256_file, found.values())))).encode()).hexdigest()


def _imported(name: str, file: Path) -> Iterator[str]:
    """What a module may import, by full names, its own package and those above each among them; some are no modules."""
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    named = [package]
    with contextlib.suppress(SyntaxError, ValueError):  # one that is broken is told when it is imported
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.Import):
                named += [one.name for one in node.names]
            elif isinstance(node, ast.ImportFrom):
                with contextlib.suppress(ImportError):  # of a package that it is not in
                    base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
                    named += [f"{base}.{one.name}" for one in node.names]
    for one in named:
        yield from itertools.accumulate(one.split("."), "{}.{}".format)


def _file_of(name: str) -> Path | None:
    """The file of a module, by its full name, where Python finds its first package; nothing is imported."""
    top, *parts = name.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):  # "", or what somebody has made without a file
        return None
    if spec is None:
        return None
    if not parts:
        return Path(spec.origin) if spec.has_location and spec.origin else None
    within = [Path(place, *parts) for place in spec.submodule_search_locations or ()]
    files = (file for at in within for file in (at / "__init__.py", at.parent / f"{at.name}.py"))
    return next(filter(Path.is_file, files), None)
