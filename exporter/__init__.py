"""The tritonwatch sidecar: measures an NVIDIA Triton server and exports the results."""
