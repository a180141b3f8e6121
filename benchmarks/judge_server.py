"""A tiny chat-completions server that never fails: it says True after a fixed delay.

    python benchmarks/judge_server.py --delay-ms 20

It prints its URL and serves until it is stopped. It shows what judging itself costs, not a model.
"""

import argparse
import asyncio
import contextlib
import json

_REPLY = {
    "object": "chat.completion",
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "<analysis>equal</analysis><true_false>True</true_false>",
            },
            "finish_reason": "stop",
            "logprobs": {
                "content": [
                    {
                        "token": "A",
                        "logprob": -0.1,
                        "top_logprobs": [
                            {"token": "A", "logprob": -0.1, "bytes": [65]},
                            {"token": "B", "logprob": -2.4, "bytes": [66]},
                        ],
                    }
                ]
            },
        }
    ],
    "usage": {"prompt_tokens": 100, "completion_tokens": 10},
}
_BODY = json.dumps(_REPLY).encode()
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
_RESPONSE = _HEAD % len(_BODY) + _BODY


async def serve(delay_s: float) -> None:
    """Print the URL and answer every request after ``delay_s``."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(_find_length(head))
                await asyncio.sleep(delay_s)
                writer.write(_RESPONSE)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=256)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    async with server:
        await server.serve_forever()


def _find_length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


def main() -> None:
    """Serve until stopped."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--delay-ms", type=float, default=20.0)
    asyncio.run(serve(parser.parse_args().delay_ms / 1000))


if __name__ == "__main__":
    main()
