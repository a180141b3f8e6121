"""The published data sets of the studies, each read in its own published form.

Every record is a row or a drop with a counted reason. Pictures may be left out where only text is
studied; where a folder of pictures is given, each row's picture has to be in it.
"""

from groupwise_recipes.visual_reasoning.sources.vsr import load_vsr

__all__ = ["load_vsr"]
