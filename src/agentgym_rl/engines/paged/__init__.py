"""The native engine on a GPU: a paged cache, CUDA graphs and Triton kernels."""
