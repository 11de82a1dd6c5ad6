"""Results of experiments: the journal, repetitions together, the scorecard."""
