"""A judgement for people: `text.py` for a terminal, `page.py` a self-contained page."""
