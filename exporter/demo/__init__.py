"""`tritonwatch demo`: a real Triton with demo models, the sidecar, and gentle traffic."""
