"""What is kept of experiments: the journal, repetitions together, the scorecard."""
