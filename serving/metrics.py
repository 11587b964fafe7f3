"""The tally of a service in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from tirgym.serving.service import DecisionService
from tirgym.serving.tally import BUCKETS_S, OUTCOMES

__all__ = ["CONTENT_TYPE", "metrics_text"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def metrics_text(service: DecisionService) -> bytes:
    """All there is to know about `service` in figures."""
    registry = CollectorRegistry()
    registry.register(_Figures(service))
    return generate_latest(registry)


class _Figures(Collector):
    """Reads the tally when it is asked."""

    def __init__(self, service: DecisionService) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        """The metrics; those that have not counted yet stand at 0."""
        tally, host = self._service.tally, self._service.host
        decisions = CounterMetricFamily(
            "tirgym_decisions", "Decisions by what came of them", labels=["outcome"]
        )
        for outcome in OUTCOMES:
            decisions.add_metric([outcome], tally.decisions[outcome])
        yield decisions
        responses = CounterMetricFamily(
            "tirgym_http_responses", "Responses by status", labels=["code"]
        )
        for code, number in sorted(tally.responses.items()):
            responses.add_metric([str(code)], number)
        yield responses
        bounds = [*map(str, BUCKETS_S), "+Inf"]
        buckets = list(zip(bounds, accumulate(tally.messages), strict=True))
        yield HistogramMetricFamily(
            "tirgym_message_seconds", "From message to answer", buckets, tally.seconds
        )
        yield CounterMetricFamily(
            "tirgym_agents_replaced", "Agents that hung and were replaced", host.replaced
        )
        yield GaugeMetricFamily("tirgym_messages_waiting", "Messages that wait", host.waiting)
        yield GaugeMetricFamily("tirgym_agent_hangs", "1 while the agent hangs", int(host.hangs))
        agent = GaugeMetricFamily("tirgym_agent_info", "Who answers", labels=["agent"])
        agent.add_metric([host.name], 1)
        yield agent
