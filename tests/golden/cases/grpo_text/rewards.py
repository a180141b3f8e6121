"""What an answer earns, checked by code alone."""


def asked_letters(example, completion):
    """Return the share of the letters of both words that are in an answer."""
    asked = set(example.fields["first"] + example.fields["second"])
    return len(asked & set(completion.text.lower())) / len(asked)


def new_letters(example, completion):
    """Return the share of characters that differ; an empty answer cannot be scored."""
    text = completion.text
    return len(set(text)) / len(text) if text else None
