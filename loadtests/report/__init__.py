"""Results of a run or a search as JSON, HTML and text, and two of them compared."""
