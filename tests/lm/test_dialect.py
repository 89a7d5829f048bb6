"""If these failed, models would be sent limits and zeros that they refuse, and filters would end whole questions."""

import asyncio

import dspy
import pytest
from dspy.lm15 import Config, Message, Request

from raisf.lm.dialect import Dialect

OWN, OPENAIS, AZURES = (
    "http://127.0.0.1:8000/v1",
    "https://eu.api.openai.com/v1",
    "https://x.openai.azure.com/openai/v1",
)


@pytest.mark.parametrize(
    ("model", "place", "name"),
    [
        *(("openai/x", OWN, "max_tokens"), ("openai/gpt-5-mini", OWN, None), ("openai/x", None, None)),
        *(("openai/x", OPENAIS, None), ("openai/x", AZURES, None)),
    ],
)
def test_the_limit_has_the_name_that_every_server_knows(model: str, place: str | None, name: str | None) -> None:
    """Ollama wrote on to the end of its context, and Mistral refused all."""
    told: list[Request] = []

    async def attempt(request: Request) -> None:
        told.append(request)

    asked = Request(model=model, messages=(Message.user("Who?"),), config=Config(max_tokens=5, extensions={"a": 1}))
    asyncio.run(Dialect(dspy.LM(model), place).ask(attempt, asked))
    config = told[0].config
    assert (config.max_tokens, config.extensions) == ((None, {"a": 1, name: 5}) if name else (5, {"a": 1}))
