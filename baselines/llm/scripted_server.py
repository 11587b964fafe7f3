"""A local server with the chat completions protocol and a script instead of a model.

    python -m tirgym.baselines.llm.scripted_server --port 8000
    tirgym optimize softmax --agent llm --model scripted --base-url http://127.0.0.1:8000/v1

It shows the whole way of the agent without a key or a network. It is no language model, and says so. The
class misbehaves on demand, for tests of what talks to endpoints.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from tirgym.baselines.llm.scripted_player import scripted_answer

__all__ = ["FAULTS", "MODEL", "ScriptedServer", "main"]

MODEL = "scripted"
"""Name of the only model."""

Player = Callable[[Sequence[dict[str, Any]]], Any]
"""From messages to an answer: a JSON object that says what to do, or a text that is sent as it is."""

FAULTS = (
    "ok", "400", "429", "500", "503", "overflow", "hang", "garbage", "not-json", "no-choices",
    "huge", "illegal", "out-of-range", "no-usage",
)  # fmt: skip
"""What one request can be answered by instead; "429:3" three times, "500:always" from then on."""

_HUGE = 3_000_000
_ERRORS = {
    "400": (400, "invalid_request_error", "this request is not to my liking"),
    "429": (429, "rate_limit_exceeded", "slow down"),
    "500": (500, "server_error", "the server had an accident"),
    "503": (503, "server_error", "overloaded"),
    "overflow": (400, "context_length_exceeded", "maximum context length is 512 tokens"),
}


class ScriptedServer:
    """Serves on 127.0.0.1 from a thread; used as a context manager.

    `faults` are taken one for each chat request (see `FAULTS`), "ok" is an answer. With `tools` False
    requests with tools are refused as by servers that have none; with `key` others are refused.
    `requests` holds the chat requests that came, bodies and headers.
    """

    def __init__(
        self,
        player: Player = scripted_answer,
        faults: Iterable[str] = (),
        tools: bool = True,
        key: str = "",
        port: int = 0,
        model: str = MODEL,
    ) -> None:
        self.player, self.tools, self.key, self.model = player, tools, key, model
        self.faults = [fault for text in faults for fault in _unfolded(text)]
        self.requests: list[tuple[dict[str, Any], dict[str, str]]] = []
        self.lock = threading.Lock()
        self.released = threading.Event()
        self.most_at_once = self._at_once = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()

    def serve(self) -> None:
        """Serve until interrupted."""
        with self._server:
            self._server.serve_forever()

    def fault(self) -> str:
        """What the next chat request is answered by."""
        with self.lock:
            if not self.faults:
                return "ok"
            if self.faults[0].endswith(":always"):
                return self.faults[0].partition(":")[0]
            return self.faults.pop(0)

    def busy(self, change: int) -> None:
        """Count requests that are being answered."""
        with self.lock:
            self._at_once += change
            self.most_at_once = max(self.most_at_once, self._at_once)


def _unfolded(text: str) -> list[str]:
    """`429:3` as three faults."""
    name, _, times = text.partition(":")
    if name not in FAULTS:
        raise ValueError(f"unknown fault {name!r}; expected one of {', '.join(FAULTS)}")
    return [text] if times == "always" else [name] * int(times or 1)


def _handler(server: ScriptedServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, format: str, *arguments: Any) -> None:
            """Say nothing."""

        def do_GET(self) -> None:
            if self.path == "/v1/models":
                listed = [
                    {"id": server.model, "object": "model", "created": 0, "owned_by": "nobody"}
                ]
                self._send(200, {"object": "list", "data": listed})
            else:
                self._error(404, "not_found", f"no such path: {self.path}")

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            server.busy(1)
            try:
                self._answer(body)
            finally:
                server.busy(-1)

        def _answer(self, body: bytes) -> None:
            if self.path != "/v1/chat/completions":
                return self._error(404, "not_found", f"no such path: {self.path}")
            try:
                asked = json.loads(body)
            except ValueError:
                return self._error(400, "invalid_request_error", "the body is no JSON")
            with server.lock:
                server.requests.append((asked, dict(self.headers)))
            sent = self.headers.get("Authorization", "")
            if server.key and sent != f"Bearer {server.key}":
                key = sent.removeprefix("Bearer ")
                return self._error(401, "invalid_api_key", f"Incorrect API key provided: {key}")
            if asked.get("model") != server.model:
                name = asked.get("model")
                return self._error(404, "model_not_found", f"the model {name!r} does not exist")
            if asked.get("tools") and not server.tools:
                return self._error(400, "invalid_request_error", "unknown field: tools")
            fault = server.fault()
            if fault in _ERRORS:
                return self._error(*_ERRORS[fault])
            if fault == "hang":
                server.released.wait(60)
                return None
            if fault == "not-json":
                return self._raw(200, b'{"id": "chatcmpl-1", "choi')
            return self._complete(asked, fault)

        def _complete(self, asked: dict[str, Any], fault: str) -> None:
            message, finish = _message(server.player, asked, fault)
            choices = [{"index": 0, "message": message, "finish_reason": finish}]
            prompt, said = len(json.dumps(asked["messages"])) // 4, len(json.dumps(message)) // 4
            made = {
                "id": "chatcmpl-1",
                "object": "chat.completion",
                "created": 0,
                "model": server.model,
                "choices": [] if fault == "no-choices" else choices,
                "usage": {
                    "prompt_tokens": prompt,
                    "completion_tokens": said,
                    "total_tokens": prompt + said,
                },
            }
            if fault == "no-usage":
                del made["usage"]
            self._send(200, made)

        def _error(self, status: int, code: str, message: str) -> None:
            self._send(status, {"error": {"message": message, "type": code, "code": code}})

        def _send(self, status: int, data: Any) -> None:
            self._raw(status, json.dumps(data).encode())

        def _raw(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            if status in (429, 500, 503):
                self.send_header("Retry-After-Ms", "10")
            self.end_headers()
            self.wfile.write(body)

    return Handler


def _message(player: Player, asked: dict[str, Any], fault: str) -> tuple[dict[str, Any], str]:
    """The message of the assistant, and why it ends."""
    wrong = {
        "garbage": "Sure! I would tile the loops, {and then",
        "huge": "x" * _HUGE,
        "illegal": _one("Levitate(loop=0)"),
        "out-of-range": {"proposals": [{"base": 10**6, "actions": [], "why": ""}]},
    }
    answer = wrong[fault] if fault in wrong else player(asked["messages"])
    if isinstance(answer, dict) and asked.get("tools"):
        name = "propose" if "proposals" in answer else "look" if "look" in answer else "stop"
        arguments = answer if name == "propose" else answer[name]
        arguments = {"why": arguments} if name == "stop" else arguments
        called = {"name": name, "arguments": json.dumps(arguments)}
        calls = [{"id": "call_1", "type": "function", "function": called}]
        return {"role": "assistant", "content": None, "tool_calls": calls}, "tool_calls"
    text = answer if isinstance(answer, str) else json.dumps(answer)
    return {"role": "assistant", "content": text}, "stop"


def _one(action: str) -> dict[str, Any]:
    proposal = {"actions": [action], "predicted_speedup": 2.0, "why": "to be refused"}
    return {"proposals": [proposal]}


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until Ctrl-C."""
    parser = argparse.ArgumentParser(
        prog="python -m tirgym.baselines.llm.scripted_server",
        description="A scripted stand-in for a language model: picks by static cost. No model.",
    )
    parser.add_argument("--port", type=int, default=8000, help="0 takes any free port")
    parser.add_argument("--no-tools", action="store_true", help="refuse tools, as some servers do")
    parser.add_argument("--key", default="", help="refuse any other API key")
    parser.add_argument(
        "--faults", default="", metavar="NAME,…", help=f"misbehave: {', '.join(FAULTS)}; NAME:TIMES"
    )
    given = parser.parse_args(arguments)
    try:
        faults = [fault for fault in given.faults.split(",") if fault]
        server = ScriptedServer(
            faults=faults, tools=not given.no_tools, key=given.key, port=given.port
        )
    except (ValueError, OSError, OverflowError) as error:
        parser.error(str(error))
    print(f"scripted, no language model: --model {MODEL} --base-url {server.url}", flush=True)
    try:
        server.serve()
    except KeyboardInterrupt:
        print("ended", file=sys.stderr)


if __name__ == "__main__":
    main()
