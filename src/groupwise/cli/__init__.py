"""The command line: verbs by what they are for. It parses, calls the library and prints."""
