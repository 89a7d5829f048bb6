"""A real OpenAI-compatible server on loopback: real weights, real log-probabilities, in this process.

with serve({"pocket": folder}) as endpoint:
    connect("openai/pocket", api_base=endpoint.url)
"""

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import uvicorn
from peft import PeftModel
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from transformers import AutoModelForCausalLM, AutoTokenizer

Refuses = Callable[[dict[str, Any]], tuple[int, str] | None]


class Llama:
    """A causal model, with or without an adapter, that continues tokens greedily."""

    def __init__(self, folder: Path, lora: Path | None = None) -> None:
        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        model: Any = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, dtype="float32")
        self.model: Any = (PeftModel.from_pretrained(model, str(lora)) if lora else model).eval()

    def continued(self, prompt: list[int], limit: int, stops: list[str], listed: int) -> tuple[str, str, list[Any]]:
        """The text, why it ended, and of each token itself, its log-probability and the likeliest in its place."""
        tokens, places = list(prompt), []
        for _ in range(limit):
            with torch.inference_mode():
                logprobs = self.model(input_ids=torch.tensor([tokens])).logits[0, -1].float().log_softmax(-1)
            best = int(logprobs.argmax())
            top = logprobs.topk(max(1, listed))
            places.append(
                [best, float(logprobs[best]), list(zip(top.indices.tolist(), top.values.tolist(), strict=True))]
            )
            tokens.append(best)
            text = self.tokenizer.decode(tokens[len(prompt) :], skip_special_tokens=False)
            if best == self.tokenizer.eos_token_id:
                return self.tokenizer.decode(tokens[len(prompt) : -1]), "stop", places
            for stop in stops:
                if stop in text:
                    return text.split(stop)[0], "stop", places
        return self.tokenizer.decode(tokens[len(prompt) :]), "length", places


class Endpoint:
    """Attributes: `url`, and `seen` (each request's path and body)."""

    def __init__(self, models: Mapping[str, Llama], logprobs: bool, most: int, refuses: Refuses | None) -> None:
        self.models, self.logprobs, self.most, self.refuses = models, logprobs, most, refuses
        self.url = ""
        self.seen: list[tuple[str, dict[str, Any]]] = []
        self._one = threading.Lock()

    async def known(self, request: Request) -> JSONResponse:
        first = next(iter(self.models))
        data = [{"id": name, "object": "model", "parent": None if name == first else first} for name in self.models]
        return JSONResponse({"object": "list", "data": data})

    async def chat(self, request: Request) -> JSONResponse:
        return await self._answer(request, chat=True)

    async def text(self, request: Request) -> JSONResponse:
        return await self._answer(request, chat=False)

    async def _answer(self, request: Request, chat: bool) -> JSONResponse:
        body = await request.json()
        self.seen.append((request.url.path, body))
        if self.refuses is not None and (refusal := self.refuses(body)) is not None:
            return JSONResponse({"error": {"message": refusal[1]}}, refusal[0])
        if body["model"] not in self.models:
            return JSONResponse({"error": {"message": f"no model {body['model']}"}}, 404)
        listed = int((body.get("top_logprobs") if chat else body.get("logprobs")) or 0)
        if listed > self.most:
            return JSONResponse({"error": {"message": f"at most {self.most}"}}, 400)
        told = self.logprobs and bool(body.get("logprobs"))  # in the chat's form also without a list
        return JSONResponse(await asyncio.to_thread(self._said, body, chat, listed if self.logprobs else 0, told))

    def _said(self, body: dict[str, Any], chat: bool, listed: int, told: bool) -> dict[str, Any]:
        llama = self.models[body["model"]]
        with self._one:
            if chat:
                template = llama.tokenizer.apply_chat_template
                text = template(body["messages"], tokenize=False, add_generation_prompt=True)
                prompt = llama.tokenizer(text, add_special_tokens=False)["input_ids"]
            else:
                prompt = llama.tokenizer(body["prompt"])["input_ids"]
            limit = body.get("max_completion_tokens") or body.get("max_tokens") or 16
            stops = body.get("stop") or []
            text, why, places = llama.continued(prompt, limit, [stops] if isinstance(stops, str) else stops, listed)
            decode = llama.tokenizer.decode
            choice: dict[str, Any] = {"index": 0, "finish_reason": why}
            if chat:
                choice["message"] = {"role": "assistant", "content": text}
                content = [
                    {
                        "token": decode([token]),
                        "logprob": logprob,
                        "top_logprobs": [{"token": decode([one]), "logprob": value} for one, value in top],
                    }
                    for token, logprob, top in places
                ]
                choice["logprobs"] = {"content": content} if told else None
            else:
                tops = [{decode([one]): value for one, value in top} for _, _, top in places]
                own = {
                    "tokens": [decode([one]) for one, _, _ in places],
                    "token_logprobs": [own for _, own, _ in places],
                }
                choice |= {"text": text, "logprobs": {**own, "top_logprobs": tops} if listed else None}
        used = {"prompt_tokens": len(prompt), "completion_tokens": len(places)}
        used["total_tokens"] = sum(used.values())
        kind = "chat.completion" if chat else "text_completion"
        return {"id": "x", "object": kind, "created": 1, "model": body["model"], "choices": [choice], "usage": used}


@contextlib.contextmanager
def serve(
    models: Mapping[str, Path | tuple[Path, Path]],
    logprobs: bool = True,
    most: int = 20,
    refuses: Refuses | None = None,
) -> Iterator[Endpoint]:
    """Serve in a thread of its own.

    Args:
        models: Folders by name, the base first; a LoRA module is its base's folder and its own.
        logprobs: Whether it gives log-probabilities; else it ignores the wish.
        most: Tokens that it lists at most; a request for more is refused.
        refuses: From a request's body to the status and message of a refusal.
    """
    opened = {
        name: Llama(*folders) if isinstance(folders, tuple) else Llama(folders) for name, folders in models.items()
    }
    endpoint = Endpoint(opened, logprobs, most, refuses)
    routes = [
        Route("/v1/models", endpoint.known),
        Route("/v1/chat/completions", endpoint.chat, methods=["POST"]),
        Route("/v1/completions", endpoint.text, methods=["POST"]),
    ]
    config = uvicorn.Config(Starlette(routes=routes), host="127.0.0.1", port=0, log_level="error", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        time.sleep(0.01)
    endpoint.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/v1"
    try:
        yield endpoint
    finally:
        server.should_exit = True
        thread.join(20)


def bodies(endpoint: Endpoint) -> list[dict[str, Any]]:
    """The requests' bodies, as the server read them."""
    return json.loads(json.dumps([body for _, body in endpoint.seen]))
