"""Reports of a drift comparison: `text.py` for a terminal, `drift_document.py` as a page."""
