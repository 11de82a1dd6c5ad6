"""State of the server: availability, its models, and how often they were loaded."""
