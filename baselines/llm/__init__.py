"""Language models as agents: prompts, answers, budgets, transcripts."""
