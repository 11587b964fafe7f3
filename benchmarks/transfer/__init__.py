"""Transfer: what policies that were trained on some families are worth on others."""
