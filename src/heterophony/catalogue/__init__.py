"""Methods by name, and the options that a command line or a settings file may set."""
