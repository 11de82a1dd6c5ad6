"""The report kit: a report is data (blocks.py), shown as one HTML file or as text.

The lowest layer: it imports nothing of the other packages. No block holds markup, so that
nothing from outside can become markup.
"""
