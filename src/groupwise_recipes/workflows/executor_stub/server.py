"""The stub's server: chat completions as OpenAI's API has them, on this machine only."""

import asyncio
import json
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Self

from groupwise.core import ServingError
from groupwise_recipes.workflows.executor_stub.abilities import Abilities
from groupwise_recipes.workflows.executor_stub.model import StubModel
from groupwise_recipes.workflows.problem_sets import Problem

STUB_NAME = "executor-stub"
"""Name of the model that it serves, by which a report knows it."""
_BACKLOG = 256
_MAX_BODY_BYTES = 16 << 20
_CHARACTERS_A_TOKEN = 4
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 413: "Content Too Large"}


class ExecutorStub:
    """Serves a ``StubModel`` from a thread; a context manager.

    Args:
        problems: whose answers it knows.
        abilities: how often it is right; None: the defaults.
        port: on 127.0.0.1; 0: a free one.
    """

    def __init__(
        self, problems: Sequence[Problem], abilities: Abilities | None = None, *, port: int = 0
    ) -> None:
        self.model = StubModel(problems, abilities)
        self.port = port
        self.num_replies = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    @property
    def url(self) -> str:
        """Address for ``ServerSettings``."""
        return f"http://127.0.0.1:{self.port}/v1"

    def __enter__(self) -> Self:
        """Start to listen."""
        self._thread.start()
        starting = asyncio.run_coroutine_threadsafe(self._listen(), self._loop)
        try:
            self._server = starting.result()
        except OSError as error:
            self._end()
            raise ServingError(
                f"cannot listen on port {self.port} ({error.strerror})", fix="choose another one"
            ) from error
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        """Stop, and close all connections."""
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._end()

    def wait(self) -> None:
        """Wait until interrupted."""
        self._thread.join()

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(
            self._serve, "127.0.0.1", self.port, backlog=_BACKLOG, limit=1 << 16
        )

    async def _close(self) -> None:
        self._server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                length = _read_length(head)
                if length > _MAX_BODY_BYTES:
                    writer.write(_write(413, {"error": {"message": "too long"}}))
                    break
                body = await reader.readexactly(length)
                writer.write(_write(*self._answer(head[0].split(" "), body)))
                await writer.drain()
        except asyncio.CancelledError:
            pass  # The server is closed; streams complain of connections that are cancelled.
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError, ValueError):
            pass
        finally:
            writer.close()

    def _answer(self, line: Sequence[str], body: bytes) -> tuple[int, Mapping[str, Any]]:
        """Return status and content for a request line and a body."""
        if line[:2] == ["GET", "/health"]:
            return 200, {"status": "ok"}
        if line[:2] == ["GET", "/v1/models"]:
            served = {"id": STUB_NAME, "object": "model", "owned_by": "groupwise executor-stub"}
            return 200, {"object": "list", "data": [served]}
        if line[:2] != ["POST", "/v1/chat/completions"]:
            return _refuse(404, f"there is no {' '.join(line[:2])}")
        try:
            return self._complete(json.loads(body))
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            return _refuse(400, f"no chat completion can be made of this ({error})")

    def _complete(self, asked: Mapping[str, Any]) -> tuple[int, Mapping[str, Any]]:
        if asked["model"] != STUB_NAME:
            return _refuse(404, f"The model `{asked['model']}` does not exist.")
        text = _read_text(asked["messages"][-1]["content"])
        first = int(asked.get("seed") or 0)
        replies = [self.model.reply(text, first + n) for n in range(int(asked.get("n", 1)))]
        self.num_replies += len(replies)
        reasoning = sum(reply.reasoning_tokens for reply in replies)
        said = sum(1 + len(reply.text) // _CHARACTERS_A_TOKEN for reply in replies)
        prompt = 1 + len(text) // _CHARACTERS_A_TOKEN
        usage = {
            "prompt_tokens": prompt,
            "completion_tokens": said + reasoning,
            "total_tokens": prompt + said + reasoning,
            "completion_tokens_details": {"reasoning_tokens": reasoning},
        }
        choices = [
            {
                "index": place,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": reply.text},
            }
            for place, reply in enumerate(replies)
        ]
        kind = {"id": "stub", "object": "chat.completion", "created": 0, "model": STUB_NAME}
        return 200, {**kind, "choices": choices, "usage": usage}


def _read_length(head: Sequence[str]) -> int:
    named = (line.partition(":") for line in head[1:])
    found = [value for name, _, value in named if name.strip().lower() == "content-length"]
    return int(found[0]) if found else 0


def _read_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in content if part.get("type") == "text")


def _refuse(status: int, message: str) -> tuple[int, Mapping[str, Any]]:
    return status, {"error": {"message": message, "type": "invalid_request", "code": status}}


def _write(status: int, content: Mapping[str, Any]) -> bytes:
    body = json.dumps(content).encode()
    head = f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
