"""One way to ask a model, in this process or behind a server: replies, shares of labels, streams.

Its modules are public.
"""
