"""A judgement for people: `text.py` for a terminal, `drift_document.py` as a page."""
