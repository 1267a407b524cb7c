"""One file a command or family of commands, loaded when it runs."""
