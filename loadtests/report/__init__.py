"""What a run or a search found, as JSON, HTML and text, and two of them compared."""
