"""How to talk to Triton, and how to run one of our own."""
