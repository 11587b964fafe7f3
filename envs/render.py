"""What an episode looks like: text, a self-contained HTML page, or an image."""

from __future__ import annotations

import html
from typing import Any

import numpy as np
from gymnasium.error import DependencyNotInstalled
from numpy.typing import NDArray

from tirgym.envs.episode import Episode
from tirgym.harness.program import Program
from tirgym.spaces.graph import encoder_for

__all__ = ["RENDER_MODES", "render"]

RENDER_MODES = ("ansi", "html", "rgb_array")

_FRAME_INCHES = 12.0
"""Width and height of an image, at 100 dots an inch: one size for all, as videos and spaces need."""
_FONT_POINTS = 9.0
"""Size of its letters, smaller where the text would not fit."""


def render(mode: str, episode: Episode) -> Any:
    """A string for "ansi" and "html", a uint8 array of shape (1200, 1200, 3) for "rgb_array"."""
    if mode == "ansi":
        return _ansi(episode)
    return _html(episode) if mode == "html" else _rgb_array(episode)


def _headline(episode: Episode) -> list[str]:
    """Workload, last action with verdict and reward, speedup so far."""
    last = episode.last
    lines = [f"{episode.program.workload} on {episode.program.target}, step {episode.steps}"]
    if last.action:
        verdict = "" if last.legal else ", rejected"
        verdict += f", {last.status}" if last.status else ""
        lines.append(f"last action: {last.action}{verdict}, reward {last.reward:+.4f}")
    if last.message:
        lines.append(f"message: {last.message}")
    speedup, best = episode.reward.speedup, episode.best_speedup
    lines.append(f"speedup {speedup:.3f}, best {best:.3f}, return {episode.reward.total:+.4f}")
    return lines


def _tree(program: Program) -> list[str]:
    return encoder_for(program.dialect).tree(program)


def _marked(before: list[str], after: list[str]) -> list[tuple[bool, str]]:
    """Lines of `after`, and whether each is new or moved."""
    known = set(before)
    return [(line not in known, line) for line in after]


def _ansi(episode: Episode) -> str:
    lines = _headline(episode)
    after = _tree(episode.program)
    before = episode.last.before
    if before is None or before is episode.program:
        return "\n".join([*lines, "", *after]) + "\n"
    old = _tree(before)
    body = ["", "before:", *(f"{'- ' if new else '  '}{line}" for new, line in _marked(after, old))]
    body += ["", "after:", *(f"{'+ ' if new else '  '}{line}" for new, line in _marked(old, after))]
    return "\n".join([*lines, *body]) + "\n"


_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>
body {{ font: 14px/1.5 system-ui, sans-serif; margin: 1.5em; color: #222; background: #fff }}
table {{ border-collapse: collapse }} td, th {{ vertical-align: top; padding: 0 1.5em 0 0; text-align: left }}
pre {{ font: 13px/1.4 ui-monospace, monospace; margin: 0 }}
.old {{ background: #fbe3e4 }} .new {{ background: #e2f5e3 }}
</style></head>
<body><h1>{title}</h1><p>{headline}</p>
<table><tr><th>before</th><th>after</th></tr><tr><td>{before}</td><td>{after}</td></tr></table>
</body></html>
"""


def _column(lines: list[tuple[bool, str]], style: str) -> str:
    def line(marked: bool, text: str) -> str:
        escaped = html.escape(text)
        return f'<span class="{style}">{escaped}</span>' if marked else escaped

    return "<pre>" + "\n".join(line(*item) for item in lines) + "</pre>"


def _html(episode: Episode) -> str:
    after = _tree(episode.program)
    before = _tree(episode.last.before) if episode.last.before is not None else after
    headline = "<br>".join(html.escape(line) for line in _headline(episode)[1:])
    return _PAGE.format(
        title=html.escape(_headline(episode)[0]),
        headline=headline,
        before=_column(_marked(after, before), "old"),
        after=_column(_marked(before, after), "new"),
    )


def _rgb_array(episode: Episode) -> NDArray[np.uint8]:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        message = "render_mode 'rgb_array' draws with matplotlib: pip install 'tirgym[plot]'"
        raise DependencyNotInstalled(message) from None
    text = _ansi(episode).replace("$", r"\$")
    lines = text.splitlines()
    needed = max(0.085 * max(map(len, lines)), 0.19 * len(lines)) + 0.3
    figure = Figure(figsize=(_FRAME_INCHES, _FRAME_INCHES), dpi=100)
    canvas = FigureCanvasAgg(figure)
    size = _FONT_POINTS * min(1.0, _FRAME_INCHES / needed)
    figure.text(0.01, 0.99, text, family="monospace", fontsize=size, va="top")
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()
