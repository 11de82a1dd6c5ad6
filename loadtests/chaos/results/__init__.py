"""Results of experiments: the journal of one, the scorecard of many."""
