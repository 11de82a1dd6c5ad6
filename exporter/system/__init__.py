"""Files, processes, memory, threads and standard error of this machine."""
