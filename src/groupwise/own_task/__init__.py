"""Your own task: rows in a file, an answer parser, and rewards by name or in a file of yours."""
