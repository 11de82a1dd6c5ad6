"""The transport to an OpenAI-compatible server, beside `exporter/triton`, whose HTTP client and records it uses."""
