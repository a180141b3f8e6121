"""Learning from what people say: rounds, candidates, and certificates of what they are worth.

A candidate takes the place of the served version only with evidence from sessions that no version
was trained on, asked about before anybody saw the answers. Needs ``groupwise[learn]``.
Its modules are public.
"""
