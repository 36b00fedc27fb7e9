"""Model files: the file format, and kernels, actions and likelihoods as JSON."""
