"""Model files: one container, and kernels, actions and likelihoods as JSON."""
