"""Champion and challenger under identical requests: asking, statistics, verdicts."""
