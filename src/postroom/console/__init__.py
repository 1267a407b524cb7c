"""Shows: what a person sees, from the command line on."""
