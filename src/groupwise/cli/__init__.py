"""The command line: one file per verb. It parses, calls the library and prints."""

__all__: list[str] = []
