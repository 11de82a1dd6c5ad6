"""What an experiment did to users and who noticed: from times to verdicts."""
