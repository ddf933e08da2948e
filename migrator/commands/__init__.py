"""The verbs of the `migrator` command, one module each."""
