"""One time through an experiment, and how many of them there are."""
