"""The tritonwatch sidecar: measures an NVIDIA Triton server and exports what it finds."""
