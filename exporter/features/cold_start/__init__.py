"""Cold starts: the time that loading a model and its first answer take."""
