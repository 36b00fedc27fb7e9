"""How good a fitted model is: scores, pictures and a page."""
