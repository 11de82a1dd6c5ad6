"""Is a model that answers right? Held-out data, recorded answers, checks without either.

Loaded only where a golden probe is configured.
"""
