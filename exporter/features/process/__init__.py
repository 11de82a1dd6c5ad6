"""CPU, memory and descriptors of this process, and memory of a Triton on this machine."""
