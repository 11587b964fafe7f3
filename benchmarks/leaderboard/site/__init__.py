"""The website of a board: plain files that open without a server and ask for nothing from elsewhere.

index.html          ranking, curves, who beats whom, workloads, what failed, protocol
compare.html        two agents side by side
kernels/NAME.html   one workload: every answer, and the winning trace step by step
"""

from __future__ import annotations

from tirgym.benchmarks.leaderboard.site.pages import write_site

__all__ = ["write_site"]
