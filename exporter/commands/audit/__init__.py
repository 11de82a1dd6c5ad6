"""One look at one server: where a request's time goes, what lies, and what to do.

First everything is read into one frozen `Evidence` (gather.py); then every check, a
pure function over it (checks/), says its findings; then text, JSON or HTML.
"""
