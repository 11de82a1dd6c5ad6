"""`tritonwatch demo`: a real Triton with demo models, the sidecar, and light traffic."""
