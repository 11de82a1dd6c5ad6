"""How to talk to an OpenAI-compatible server: requests, streamed answers, a client."""
