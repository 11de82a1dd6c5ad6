"""The report of a drift comparison, as a page and for a terminal."""
