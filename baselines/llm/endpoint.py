"""`Endpoint`: a model behind the chat completions protocol, through the official `openai` client."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from tirgym.baselines.llm.answers import (
    LONGEST,
    TOOLS,
    Call,
    MalformedAnswerError,
    Message,
    Reply,
    loads_encodable,
    read_answers,
)
from tirgym.baselines.llm.budget import Usage
from tirgym.errors import EndpointError, InvalidValueError, MissingExtraError, UnknownNameError
from tirgym.http_address import is_http_address
from tirgym.spaces.text_budget import count_tokens

__all__ = ["FORMS", "Endpoint", "Exchange", "prompt_tokens", "public_url", "require_openai"]

FORMS = ("auto", "tools", "json")
"""How answers are asked for: tool calls where the endpoint has them, only tool calls, only JSON."""

_STATUS = re.compile(r"^Error code: \d+ - ")
_OVERFLOW = (
    "context_length",
    "context length",
    "maximum context",
    "context window",
    "context size",
)
_SECRET = 8
"""Characters of a secret at least."""
_BEGAN = "tirgym.began"
"""Of a request: time.monotonic() when it was sent."""
_OTHER_LIMIT = {"max_completion_tokens": "max_tokens", "max_tokens": "max_completion_tokens"}
"""Names of the field that limits an answer; endpoints know one or the other."""
_WITHOUT_TOOLS = frozenset({400, 422})
"""Statuses of endpoints that do not know the field `tools`."""
_HEADERS = ("OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID")
"""Variables that the client sends in headers."""
_ADDRESS = "an http or https address, such as http://127.0.0.1:8000/v1"
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


@dataclass(frozen=True, slots=True)
class Exchange:
    """One question and what came of it."""

    reply: Reply
    usage: Usage
    retries: int = 0
    seconds: float = 0.0
    form: str = "tools"
    """how the answer was asked for: "tools" or "json" """


def require_openai() -> None:
    """Raises MissingExtraError where the client is not installed."""
    if find_spec("openai") is None:
        raise MissingExtraError("agent llm", "openai", "llm")


def public_url(url: str) -> str:
    """`url` without user, password, query and fragment."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def prompt_tokens(messages: Sequence[Message]) -> int:
    """Tokens of `messages` and the tools, about."""
    return count_tokens(json.dumps([*messages, TOOLS]))


class Endpoint:
    """One model at one address. Nothing is sent before the first question.

    The key is the client's own business (OPENAI_API_KEY); a server of one's own that wants none gets
    a placeholder. `notes` says what was found out about the endpoint.
    """

    def __init__(
        self,
        model: str,
        base_url: str = "",
        form: str = "auto",
        timeout_s: float = 120.0,
        retries: int = 2,
        temperature: float | None = None,
    ) -> None:
        require_openai()
        import openai

        self._openai: Any = openai
        self.model, self.timeout_s, self.retries = model, timeout_s, retries
        self.notes: list[str] = []
        self._form, self._tools, self._confirmed = form, form != "json", False
        self._limit = "max_completion_tokens"
        self._extra = {} if temperature is None else {"temperature": temperature}
        self._lock = threading.Lock()
        self.requests = 0
        """HTTP requests sent, retries included"""
        _require_ascii()
        self._client = self._connected(base_url)
        parts = urlsplit(base_url)
        self._secrets = (parts.password or "", parts.query)
        self.url = public_url(str(self._client.base_url)).rstrip("/")

    def _connected(self, base_url: str) -> Any:
        address = base_url or os.environ.get("OPENAI_BASE_URL", "")
        if address and not is_http_address(address):
            raise InvalidValueError("base URL of agent llm", address, _ADDRESS)
        local = urlsplit(base_url).hostname in _LOOPBACK
        hooks = {"request": [self._count], "response": [_limit_body]}
        http = self._openai.DefaultHttpxClient(event_hooks=hooks, trust_env=not local)
        try:
            http.base_url = address  # reads it as the client does
        except _http_library(http).InvalidURL:
            raise InvalidValueError("base URL of agent llm", address, _ADDRESS) from None
        options: dict[str, Any] = {
            "http_client": http,
            "timeout": self.timeout_s,
            "max_retries": self.retries,
            **({"base_url": base_url} if base_url else {}),
        }
        try:
            return self._openai.OpenAI(**options)
        except self._openai.OpenAIError as error:
            if not base_url:
                http.close()
                ways = "set OPENAI_API_KEY, or name an endpoint of your own (base_url)"
                raise EndpointError(f"the default endpoint wants a key: {ways}") from error
        return self._openai.OpenAI(api_key="none", **options)

    def _count(self, request: Any) -> None:
        request.extensions[_BEGAN] = time.monotonic()
        with self._lock:
            self.requests += 1

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def hide_secrets(self, text: str) -> str:
        """`text` without the key, and without password and query of the address."""
        secrets = (str(self._client.api_key or ""), *self._secrets)
        for form in {form for secret in secrets for form in (secret, json.dumps(secret)[1:-1])}:
            if len(form) >= _SECRET:  # shorter ones are placeholders, and words of any text
                text = text.replace(form, "***")
        return text

    together = True

    def ask(
        self,
        branch: int,
        messages: Sequence[Message],
        answer_tokens: int,
        seconds_left: float | None = None,
    ) -> Exchange:
        """The answer to `messages`; the client's own retries and backoff included.

        Raises EndpointError with one line for what no retry helps against, and UnknownNameError for
        a model that the endpoint does not list.
        """
        began, forms = time.monotonic(), []
        until = None if seconds_left is None else began + seconds_left
        while True:
            tools = self._tools
            forms.append((tools, self._limit))
            try:
                raw = self._create(messages, answer_tokens, tools, until)
                break
            except self._openai.APIStatusError as error:
                self._learn(error)  # or another thread did
                if (self._tools, self._limit) in forms:
                    raise self._told(error, messages) from None
            except self._openai.APITimeoutError:
                tries = f"{self.retries + 1} tries" if self.retries else "one try"
                raise EndpointError(
                    f"{self.url} did not answer within {self.timeout_s:g} s ({tries})"
                ) from None
            except self._openai.APIConnectionError as error:
                cause = error.__cause__ or error
                raise EndpointError(f"{self.url} cannot be reached: {self._said(cause)}") from None
            except self._openai.OpenAIError as error:
                raise EndpointError(f"{self.url}: {self._said(error)}") from None
        reply, usage = _read(raw.http_response.text)
        self._settle_form(reply, tools)
        if usage is None:
            answer = reply.content + "".join(call.arguments for call in reply.calls)
            usage = Usage(prompt_tokens(messages), count_tokens(answer), estimated=True)
        seconds = time.monotonic() - began
        form = "tools" if tools else "json"
        return Exchange(reply, usage, int(raw.retries_taken), round(seconds, 3), form)

    def _create(
        self,
        messages: Sequence[Message],
        answer_tokens: int,
        tools: bool,
        until: float | None,
    ) -> Any:
        timeout_s, retries = self.timeout_s, self.retries
        if until is not None:  # no more tries than there is time for, each as long as it may be
            left = max(1.0, until - time.monotonic())
            timeout_s = min(timeout_s, left)
            retries = min(retries, int(left / timeout_s) - 1)
        client = self._client.with_options(timeout=timeout_s, max_retries=retries)
        return client.chat.completions.with_raw_response.create(
            model=self.model,
            messages=list(messages),
            **{self._limit: answer_tokens},
            **({"tools": list(TOOLS)} if tools else {}),
            **self._extra,
        )

    # -- what the endpoint can do -----------------------------------------------------------

    def _learn(self, error: Any) -> None:
        """Take another form of question, where the refusal speaks against this one."""
        text, status = self._said(error).lower(), int(error.status_code)
        if _overflows(text) or status in (401, 403, 429):
            return
        with self._lock:
            if "max_completion_tokens" in text or "max_tokens" in text:
                self._limit = _OTHER_LIMIT[self._limit]
            elif self._form == "auto" and not self._confirmed:
                named = "tool" in text or "function" in text
                self._tools = self._tools and not (named or status in _WITHOUT_TOOLS)

    def _settle_form(self, reply: Reply, tools: bool) -> None:
        """Take note of how the endpoint answers."""
        with self._lock:
            if not tools and self._form == "auto" and not self._confirmed:
                self._note("it has no tool calls: answers are asked for as JSON")
            elif reply.calls:
                self._note("it answers with tool calls")
            elif tools and self._form == "auto" and not self._confirmed and _is_answer(reply):
                self._tools = False
                self._note("it answers in JSON where tools are offered: they are left out")
            else:
                return
            self._confirmed = True

    def _note(self, text: str) -> None:
        line = f"{self.model} at {self.url}: {text}"
        if not self._confirmed and line not in self.notes:
            self.notes.append(line)

    # -- one line for each error ------------------------------------------------------------

    def _told(self, error: Any, messages: Sequence[Message]) -> Exception:
        status, said = int(error.status_code), self._said(error)
        if _overflows(said.lower()):
            return EndpointError(
                f"the prompt of about {prompt_tokens(messages):,} tokens does not fit into the "
                f"context of {self.model}; a smaller prompt_tokens makes it shorter: {said}"
            )
        told: dict[int, Callable[[], Exception]] = {
            401: lambda: self._refused_key(said),
            403: lambda: self._refused_key(said),
            404: lambda: self._unknown_model(said),
            429: lambda: EndpointError(
                f"{self.url} limits the rate, after {self.retries + 1} tries: {said}"
            ),
        }
        made = told.get(status)
        return made() if made else EndpointError(f"{self.url} answers {status}: {said}")

    def _refused_key(self, said: str) -> Exception:
        key = "the key in OPENAI_API_KEY"
        return EndpointError(f"{self.url} refuses {key}, or there is none: {said}")

    def _unknown_model(self, said: str) -> Exception:
        try:
            listed = self._client.with_options(max_retries=0, timeout=10.0).models.list()
            names = sorted(str(model.id) for model in listed.data)
        except (self._openai.OpenAIError, AttributeError, TypeError, ValueError):
            names = []
        if names and self.model not in names:
            return UnknownNameError(f"model at {self.url}", self.model, names[:40])
        return EndpointError(
            f"{self.url} has no model {self.model!r}, or is no OpenAI-compatible endpoint "
            f"(their base URLs mostly end in /v1): {said}"
        )

    def _said(self, error: BaseException) -> str:
        return self.hide_secrets(_line(error))


def _http_library(made: Any) -> Any:
    """The HTTP library that `made` comes from: httpx, or the httpx2 of newer clients."""
    kinds = [kind for kind in type(made).__mro__ if kind.__module__.startswith("httpx")]
    return import_module(kinds[0].__module__.partition(".")[0])


def _limit_body(response: Any) -> None:
    """Let the body of `response` arrive within the time of its request.

    The timeout of the client is for one read, so that a server that sends blanks to keep its
    connection, as gateways do, would never be late.
    """
    request, stream, library = response.request, response.stream, _http_library(response)
    limit_s = request.extensions["timeout"]["read"]

    class Timed(library.SyncByteStream):  # type: ignore[misc, name-defined]
        def __iter__(self) -> Iterator[bytes]:
            for part in stream:
                if time.monotonic() - request.extensions[_BEGAN] > limit_s:
                    raise library.ReadTimeout("the answer takes too long", request=request)
                yield part

        def close(self) -> None:
            stream.close()

    response.stream = Timed()


def _require_ascii() -> None:
    """Raises InvalidValueError for a key that no header can carry, such as one with "…"."""
    for name in _HEADERS:
        value = os.environ.get(name, "")
        if not value.isascii():
            raise InvalidValueError(name, "•••", "plain characters (ASCII)")


def _line(error: BaseException) -> str:
    """What the error says, in one line."""
    text = _STATUS.sub("", " ".join(str(error).split()))
    return text[:300] or type(error).__name__


def _overflows(text: str) -> bool:
    return any(sign in text for sign in _OVERFLOW)


def _is_answer(reply: Reply) -> bool:
    try:
        return bool(read_answers(reply))
    except MalformedAnswerError:
        return False


def _read(text: str) -> tuple[Reply, Usage | None]:
    """The answer in the body of a response, whatever its shape, and the tokens that it states."""
    try:
        data = loads_encodable(text)
    except (ValueError, RecursionError):
        return Reply(problem="the endpoint sent no JSON"), None
    if not isinstance(data, dict):
        return Reply(problem="the endpoint sent no object"), None
    usage, choices = _usage(data.get("usage")), data.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, dict) else None
    if not isinstance(first, dict) or not isinstance(message, dict):
        return Reply(problem="the endpoint sent no choice"), usage
    content, calls = message.get("content"), message.get("tool_calls")
    content = content if isinstance(content, str) else ""
    finish = str(first.get("finish_reason") or "")
    if len(content) > LONGEST:
        content = f"{content[:LONGEST]} ... {len(content) - LONGEST} characters were cut off"
    made = tuple(_calls(calls)) if isinstance(calls, list) else ()
    return Reply(content, made, finish), usage


def _calls(items: Sequence[Any]) -> list[Call]:
    found = []
    for number, item in enumerate(items[:16]):
        function = item.get("function") if isinstance(item, dict) else None
        if isinstance(function, dict):
            arguments = function.get("arguments")
            text = arguments if isinstance(arguments, str) else json.dumps(arguments)
            name = str(function.get("name", ""))
            found.append(Call(str(item.get("id") or f"call_{number}"), name, text[:LONGEST]))
    return found


def _usage(data: Any) -> Usage | None:
    if not isinstance(data, dict):
        return None
    prompt, answer = data.get("prompt_tokens"), data.get("completion_tokens")
    if type(prompt) is not int or type(answer) is not int or prompt < 0 or answer < 0:
        return None
    return Usage(prompt, answer)
