"""Requests to an OpenAI-compatible server, its streamed answers, and a client."""
