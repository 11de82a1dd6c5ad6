"""The status page's data: each model's state, the reasons, its start, and its history."""
