"""Leaderboards: agents run at equal budgets, traces verified by replay, statistics, tables.

    run (`running`) → records.jsonl → verify (`verifying`) → sessions.jsonl, verified.jsonl
                                    → report (`report`) → board.json, tables

A record is what a run claims; only what clean processes measured again counts (`verdicts`).
"""
