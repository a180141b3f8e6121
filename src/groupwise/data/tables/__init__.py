"""Tables: a user's own rows, from files or the hub, read through a mapping of their columns."""
