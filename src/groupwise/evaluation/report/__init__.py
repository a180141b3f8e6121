"""Reports: pages as data, their phrases and plots, and the report of a run made of them."""
