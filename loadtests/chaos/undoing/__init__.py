"""What undoes faults whatever happens to who injected them."""
