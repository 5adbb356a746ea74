"""octavo on GPUs, through the library and the server, beside the figures that issue 7 records of vLLM."""
