"""The β study: what trainings with several β did to a selector, told so that it cannot mislead."""
