"""cuDNN times its convolution algorithms and takes the fastest."""
