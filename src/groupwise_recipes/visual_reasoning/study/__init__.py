"""The tables of the five studies, filled in from finished runs: a file says what each table has."""
