"""Models that become ready: how long loading and the first answer take."""
