"""Reports of runs and searches as JSON, HTML and text, and comparisons of two results."""
