"""The server as it is: whether it answers, its models, and how often they were loaded."""
