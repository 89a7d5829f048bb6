"""A language model that follows a script: for tests of a program's logic, and benches with calls of known length."""

import asyncio
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import dspy
from dspy.lm15 import Message, Request, Response, Usage

Fields = dict[str, Any]
Answer = Callable[[Fields], Fields | str]

_FIELD = re.compile(r"^\[\[ ## (\w+) ## \]\][ \t]*$", re.MULTILINE)
_ASKED = re.compile(r"\n\nRespond with the corresponding output fields.*", re.DOTALL)


class ScriptedLM(dspy.LM):
    """A `dspy.LM` whose answers come from a function; nothing is cached, nothing leaves the process.

        lm = ScriptedLM(lambda fields: {"verdict": "know", "answer": "Paris"})
        with dspy.context(lm=lm):
            dspy.Predict("question -> answer")(question="...").answer   # "Paris"

    It speaks DSPy's chat format, so it works in any program, sync and async, and it may hold more outputs than a call
    asks for: one dict can serve judges and answerers alike.

    Args:
        answer: from a call's input fields (strings, or lists where the signature says list) to its outputs. A string is
            sent as the raw reply (to script rubbish); an exception it raises is the call's failure.
        sleep: seconds that every call takes.
    """

    def __init__(self, answer: Answer, sleep: float = 0.0):
        self._script = _Script(answer, sleep)
        super().__init__(
            "scripted/lm", cache=False, num_retries=0, engine=self._script, async_engine=_AsyncScript(self._script)
        )
        # A second, hidden call in the JSON format would spoil the count.
        self.adapter = dspy.ChatAdapter(use_json_adapter_fallback=False)

    @property
    def calls(self) -> list[Fields]:
        """The input fields of each call, in the order they began."""
        return self._script.calls

    @property
    def most_at_once(self) -> int:
        """The largest number of calls that were under way together."""
        return self._script.most_at_once


class _Script:
    """The engine: one object for all copies of its LM, so that they count together."""

    def __init__(self, answer: Answer, sleep: float):
        self.answer, self.sleep = answer, sleep
        self.calls: list[Fields] = []
        self.most_at_once = 0
        self._under_way = 0
        self._lock = threading.Lock()

    def __deepcopy__(self, memo: dict[int, Any]) -> "_Script":
        return self

    @contextmanager
    def call(self, fields: Fields) -> Iterator[None]:
        with self._lock:
            self.calls.append(fields)
            self._under_way += 1
            self.most_at_once = max(self.most_at_once, self._under_way)
        try:
            yield
        finally:
            with self._lock:
                self._under_way -= 1

    def complete(self, request: Request) -> Response:
        fields = _fields(request)
        with self.call(fields):
            time.sleep(self.sleep)
            return _response(request, self.answer(fields))


class _AsyncScript:
    def __init__(self, script: _Script):
        self.script = script

    def __deepcopy__(self, memo: dict[int, Any]) -> "_AsyncScript":
        return self

    async def complete(self, request: Request) -> Response:
        fields = _fields(request)
        with self.script.call(fields):
            await asyncio.sleep(self.script.sleep)
            return _response(request, self.script.answer(fields))


def _fields(request: Request) -> Fields:
    """The input fields of a call, read back from the last message of DSPy's chat format."""
    text = _ASKED.sub("", request.messages[-1].text or "")
    _, *parts = _FIELD.split(text)
    return {name: _value(value.strip()) for name, value in zip(parts[::2], parts[1::2], strict=True)}


def _value(text: str) -> Any:
    if text.startswith("["):
        try:
            return json.loads(text)
        except ValueError:
            pass
    return text


def _response(request: Request, outputs: Fields | str) -> Response:
    if not isinstance(outputs, str):
        values = {n: v if isinstance(v, str) else json.dumps(v, ensure_ascii=False) for n, v in outputs.items()}
        outputs = "\n\n".join(f"[[ ## {name} ## ]]\n{value}" for name, value in values.items())
    prompt = sum(len((message.text or "").split()) for message in request.messages)
    usage = Usage(input_tokens=prompt, output_tokens=len(outputs.split()))
    return Response(None, request.model, Message.assistant(outputs), "stop", usage)
