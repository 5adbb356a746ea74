"""Model definitions: one readable file each, and the registry that names them (the registry needs no torch)."""
