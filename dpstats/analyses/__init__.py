"""The analyses, one file each: the functions to measure, and the inference from them."""
