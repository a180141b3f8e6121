"""What runs inside bubblewrap: a checker, and the program in a process of its own.

The modules here are compiled on the host and sent in; inside they see each other and the
standard library, and nothing else of this project.
"""

__all__: list[str] = []
