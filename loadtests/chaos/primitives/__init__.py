"""What faults are made of: processes, control groups, clocks, backends, models."""
