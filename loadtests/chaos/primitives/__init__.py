"""The parts of faults: processes, backends, model control."""
