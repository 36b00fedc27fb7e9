"""Inference on block features: posteriors, bounds, natural gradients, closed forms, prediction."""
