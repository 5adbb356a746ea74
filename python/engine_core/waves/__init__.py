"""Waves: steps that all data-parallel ranks make together, because the experts of their model are spread over them."""
