"""Pure statistics that several features use: no clock, no files, no scipy."""
