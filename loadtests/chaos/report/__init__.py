"""Reports of experiments: one journal, or a scorecard of many, as HTML and as text."""
