"""A language model searches: it sees the program and what was measured, and proposes programs.

    tirgym optimize softmax --agent llm --model NAME --base-url http://127.0.0.1:8000/v1 --trials 16
    tirgym optimize softmax --agent llm --transcript runs/softmax.llm.jsonl      # replay, no model

Any endpoint that speaks the chat completions protocol will do; the key is in OPENAI_API_KEY. Each round
is one fresh question with the program, its choices, a static profile and the history, so that
conversations stay short; the answer is a batch of proposals, each with a prediction that is recorded
beside what is measured. Everything that is said is in a transcript (`transcript.py`), which replays.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import asdict, fields
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tirgym import settings
from tirgym.baselines.llm.args import RECORDED, Args, require_args, typed_options
from tirgym.baselines.llm.budget import Ledger, Limits
from tirgym.baselines.llm.claims import summary
from tirgym.baselines.llm.endpoint import Endpoint, public_url, require_openai
from tirgym.baselines.llm.games import SPACES, make_game
from tirgym.baselines.llm.play import Play, Style
from tirgym.baselines.llm.prompts import Shown, hardware_text, shown_from
from tirgym.baselines.llm.transcript import (
    SUFFIX,
    Replayed,
    Saved,
    Transcript,
    chosen_transcript,
)
from tirgym.errors import (
    DamagedFileError,
    InvalidValueError,
    TargetMismatchError,
    TirgymError,
)
from tirgym.harness.agent import Search
from tirgym.harness.program import Program

__all__ = ["Args", "LLMAgent"]


class LLMAgent:
    """A language model behind an endpoint, or a transcript of one.

    After a run `report()` says what was spent, and `notes()` what a user should be told.
    """

    spaces = SPACES

    def __init__(self, **options: Any) -> None:
        options = typed_options(options)
        args = Args(**options)
        require_args(args)
        self._saved: Saved | None = None
        if args.transcript:
            self._given = {name: options[name] for name in RECORDED if name in options}
            if not Path(args.transcript).is_dir():
                self._saved = Saved(args.transcript)
                args = self._as_recorded(args, self._saved)
        else:
            require_openai()
        self.args = args
        model = str(self._saved.header.get("model")) if self._saved else args.model
        self.name = _name(model, bool(args.transcript))
        self._notes: list[str] = []
        self._folder: Path | None = None
        self._stem = ""
        self._ledger = Ledger(Limits())
        self._run: dict[str, Any] = {}

    @property
    def tokens(self) -> int:
        """Tokens of the last run; of a replay, those of the run that it replays."""
        return self._ledger.tokens

    @property
    def stopped(self) -> str:
        """Why the last run ended, "" before."""
        return str(self._run.get("stopped", ""))

    @property
    def failure(self) -> str:
        """What cut the last run short at the endpoint, "" if nothing did."""
        return str(self._run.get("failure", ""))

    @property
    def saw(self) -> Mapping[str, Any]:
        """What the model saw before: nobody can say what a language model was trained on."""
        who = self._saved.header if self._saved else {"model": self.args.model}
        source = f"language model {who.get('model') or 'of the transcripts'}, training data unknown"
        if self.args.transcript:
            source = f"{source}; replayed transcript"
        return {"what": "unknown", "families": [], "source": source}

    def prepare(self, start: Program, folder: Path | None, stem: str) -> None:
        """Get ready for a run on a board: transcripts go into `folder`, named after `stem`, unless
        the options say where; a replay finds the transcript of the workload, and raises as `run`."""
        self._folder, self._stem = folder, stem
        self._transcript_for(start)

    def report(self) -> dict[str, Any]:
        """JSON values: what the last run asked, spent and claimed; empty before."""
        return dict(self._run)

    def notes(self) -> list[str]:
        """What a user should know about the last run, a line each; empty before."""
        return list(self._notes)

    def run(self, search: Search) -> None:
        """Spend the budget.

        Raises EndpointError and UnknownNameError where the first question finds no answer, and for a
        replay DamagedFileError, InvalidValueError for a folder without a transcript of the workload,
        and TargetMismatchError for another workload, target or prompt. Later failures end the run,
        and keep what was found.
        """
        saved = self._transcript_for(search.start)
        args = self.args if saved is None else self._as_recorded(self.args, saved)
        limits = Limits(args.calls, args.tokens, args.money, args.price_in, args.price_out)
        ledger = self._ledger = Ledger(limits if saved is None else Limits())
        model: Endpoint | Replayed
        if saved is None:
            temperature = args.temperature if args.temperature >= 0 else None
            model = Endpoint(
                args.model, args.base_url, args.answers, args.timeout, args.retries, temperature
            )
        else:
            model = Replayed(saved)
        hide = model.hide_secrets if isinstance(model, Endpoint) else lambda text: text
        header = self._header(search.start, args, model)
        path = self._path(search.start)
        game = make_game(args.space, search, args.costs)
        with Transcript(path, header, hide) as transcript:
            play = Play(
                search,
                game,
                model,
                ledger,
                _style(args),
                transcript,
                str(header["hardware"]),
                _shown_in(saved),
                _trials_left_in(saved),
            )
            try:
                play.run()
            except TirgymError as error:
                play.stopped = " ".join(str(error).split())
                raise
            finally:
                play.stopped = hide(play.stopped)  # a model may say anything
                self._finish(play, model, transcript)

    def _finish(self, play: Play, model: Endpoint | Replayed, transcript: Transcript) -> None:
        """The last line of the transcript, the report, and what the user is told."""
        ledger = play.ledger
        spent = {
            "stopped": play.stopped,
            "calls": ledger.calls,
            "retries": ledger.retries,
            "requests": getattr(model, "requests", 0),
            "prompt_tokens": ledger.prompt_tokens,
            "answer_tokens": ledger.answer_tokens,
            "tokens_estimated": ledger.estimated,
            "money": round(ledger.money, 6),
        }
        for note in model.notes:
            transcript.add("note", text=note)
        transcript.add("end", **spent)
        model.close()
        claims = summary([asdict_of(node) for node in play.nodes])
        name = str(self.args.model if self._saved is None else self._saved.header.get("model"))
        replayed = isinstance(model, Replayed)
        self._run = {
            "model": name,
            "replayed": replayed,
            "failure": play.failure,
            **spent,
            "tokens": ledger.tokens,
            "transcript": str(transcript.path),
            "claims": claims,
        }
        about = " (about)" if ledger.estimated else ""
        money = f", money {ledger.money:.4g}" if ledger.money else ""
        of = " of the original" if replayed else ""
        self._notes = [
            *model.notes,
            (
                f"{self.name}: {ledger.calls} calls, {ledger.retries} retries, {ledger.tokens:,} "
                f"tokens{about}{of} ({ledger.prompt_tokens:,} in, {ledger.answer_tokens:,} out){money}"
            ),
            f"{self.name}: ended: {play.stopped}",
            f"predictions: {claims['text']}",
            f"transcript: {transcript.path} (tirgym explain shows its claims)",
        ]

    # -- transcripts ------------------------------------------------------------------------

    def _transcript_for(self, start: Program) -> Saved | None:
        """The transcript to replay, checked against what is to be optimised."""
        if not self.args.transcript:
            return None
        saved = self._saved or chosen_transcript(self.args.transcript, start.workload.uri)
        self._saved = saved
        self.name = _name(str(saved.header.get("model")), True)
        here = {"workload": start.workload.uri, "target": str(start.target)}
        for what, value in here.items():
            recorded = saved.header.get(what)
            if recorded != value:
                raise TargetMismatchError(
                    f"{saved.path} was recorded for {what} {recorded}, not {value}"
                )
        return saved

    def _as_recorded(self, args: Args, saved: Saved) -> Args:
        """`args` with the options that decide what is asked as the transcript has them."""
        recorded = saved.header.get("options")
        known = {f.name: getattr(args, f.name) for f in fields(Args)}
        for name in RECORDED:
            value = recorded.get(name) if isinstance(recorded, dict) else None
            if type(value) is not type(known[name]):
                problem = f"its header has no option {name}"
                raise DamagedFileError(saved.path, "transcript", problem)
            if self._given.get(name, value) != value:
                raise InvalidValueError(
                    f"{name} of agent llm", self._given[name], f"{value!r}, as in {saved.path}"
                )
            known[name] = value
        return Args(**known)

    def _header(self, start: Program, args: Args, model: Endpoint | Replayed) -> dict[str, Any]:
        """The first line of the transcript."""
        recorded = model.saved.header if isinstance(model, Replayed) else {}
        hardware = recorded.get("hardware") or hardware_text(start.target)
        url = recorded.get("base_url") if recorded else getattr(model, "url", "")
        return {
            "model": recorded.get("model", args.model),
            "base_url": public_url(str(url)),
            "workload": start.workload.uri,
            "target": str(start.target),
            "hardware": hardware,
            "options": {name: getattr(args, name) for name in RECORDED},
            "versions": {name: _version(name) for name in ("tirgym", "openai")},
            "replayed": getattr(getattr(model, "saved", None), "path", ""),
            "made": datetime.now(UTC).isoformat(timespec="seconds"),
        }

    def _path(self, start: Program) -> Path:
        """Where the transcript goes."""
        sizes = "-".join(f"{name}{size}" for name, size in start.workload.dims)
        plain = re.sub(r"[^\w.-]+", "-", f"{start.workload.kernel.name}-{sizes}").strip("-")
        stem = self._stem or f"{plain}-{time.strftime('%Y%m%d-%H%M%S')}"
        if not self.args.save:
            folder = self._folder or settings.data_dir() / "transcripts"
            return folder / f"{stem}{SUFFIX}"
        path = Path(self.args.save)
        is_folder = path.is_dir() or self.args.save.endswith("/") or not path.suffix
        return path / f"{stem}{SUFFIX}" if is_folder else path


def asdict_of(node: Any) -> dict[str, Any]:
    """A node as `claims` reads it from a line of a transcript."""
    return {
        "number": node.number,
        "base": node.base,
        "name": node.name,
        "predicted_speedup": node.predicted,
        **asdict(node.shown),
    }


def _name(model: str, replayed: bool) -> str:
    return f"llm:{model}" + (" (replayed transcript)" if replayed else "")


def _style(args: Args) -> Style:
    return Style(**{f.name: getattr(args, f.name) for f in fields(Style)})


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _shown_in(saved: Saved | None) -> Any:
    """What a replayed run saw of each program, by IR key."""
    lines = saved.of("measured") if saved else []
    known: dict[str, Shown] = {str(line.get("ir_key")): shown_from(line) for line in lines}
    return known.get


def _trials_left_in(saved: Saved | None) -> Any:
    """Trials that a replayed run had left, by round."""
    lines = saved.of("round") if saved else []
    return {line.get("round"): line.get("trials_left") for line in lines}.get
