"""Comparisons of a champion with a challenger: requests, statistics, verdicts."""
