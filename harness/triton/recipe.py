"""`Recipe`: what may be changed of a Triton program, its meta-parameters and its pass pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from tirgym.harness.triton.gpus import Gpu
from tirgym.harness.triton.pass_rules import LEVELS, MANDATORY, tail_start
from tirgym.harness.triton.pipeline import PassCall, Pipeline, stock_pipeline
from tirgym.kernels_suite.kernel import Workload
from tirgym.kernels_suite.triton.source import TritonSource

__all__ = ["Recipe", "follows"]


@dataclass(frozen=True)
class Recipe:
    """A kernel's source with every meta-parameter and every pass; immutable."""

    workload: Workload
    gpu: Gpu
    source: TritonSource
    config: tuple[tuple[str, int], ...]
    """every meta-parameter, in the order of the source"""
    pipeline: Pipeline

    @cached_property
    def values(self) -> Mapping[str, int]:
        """`config` by name."""
        return dict(self.config)

    @cached_property
    def names(self) -> Mapping[str, tuple[str, ...]]:
        """Names of the passes of each level, in order."""
        return {level: tuple(call.name for call in self.calls(level)) for level in LEVELS}

    @cached_property
    def tails(self) -> Mapping[str, int]:
        """Where the tail of each level begins."""
        return {level: tail_start(self.names[level], level, self.gpu) for level in LEVELS}

    @cached_property
    def firsts(self) -> Mapping[str, Mapping[str, int]]:
        """By level: where each pass runs first before the tail."""
        return {
            level: {
                name: place
                for place, name in reversed(list(enumerate(self.names[level][: self.tails[level]])))
            }
            for level in LEVELS
        }

    @cached_property
    def _places(self) -> dict[tuple[str, str, int], int | tuple[str, str]]:
        return {}

    def place(self, level: str, name: str, nth: int) -> int | tuple[str, str]:
        """Where run `nth` of a pass stands, else the rule and the reason why it may not be touched."""
        key = level, name, nth
        found = self._places.get(key)
        if found is None:
            found = self._places[key] = self._placed(self.names[level], level, name, nth)
        return found

    def _placed(
        self, names: tuple[str, ...], level: str, name: str, nth: int
    ) -> int | tuple[str, str]:
        places = [place for place, found in enumerate(names) if found == name]
        if not 0 <= nth < len(places):
            times = f"{len(places)} time{'' if len(places) == 1 else 's'}"
            return "pass", f"{name} runs {times}"
        if places[nth] >= self.tails[level]:
            return "tail", "the mandatory passes at the end stay as they are"
        if name in MANDATORY:
            return "mandatory", f"{name} is mandatory"
        return places[nth]

    @property
    def stock(self) -> Pipeline:
        """What the installed Triton runs for this configuration."""
        return stock_pipeline(self.gpu, self.values["num_warps"], self.values["num_stages"])

    def calls(self, level: str) -> tuple[PassCall, ...]:
        """The passes of "ttir" or "ttgir"."""
        return self.pipeline.ttir if level == "ttir" else self.pipeline.ttgir

    def with_calls(self, level: str, calls: tuple[PassCall, ...]) -> Recipe:
        """With other passes at one level."""
        made = Pipeline(calls, self.pipeline.ttgir) if level == "ttir" else Pipeline(
            self.pipeline.ttir, calls
        )  # fmt: skip
        return replace(self, pipeline=made)


def follows(pipeline: Pipeline, before: Pipeline, after: Pipeline) -> Pipeline | None:
    """`pipeline`, an edited `before`, as the same edits make it of `after`; both are stock pipelines.

    Calls that are those of `before` become those of `after`; what an agent gave other arguments
    stays. None where the two do not have the same passes, so that edits of one mean nothing in the
    other.
    """
    if pipeline == before:
        return after
    levels = []
    for edited, old, new in (
        (pipeline.ttir, before.ttir, after.ttir),
        (pipeline.ttgir, before.ttgir, after.ttgir),
    ):
        if [call.name for call in old] != [call.name for call in new]:
            return None
        becomes = dict(zip(old, new, strict=True))
        levels.append(tuple(becomes.get(call, call) for call in edited))
    return Pipeline(*levels)
