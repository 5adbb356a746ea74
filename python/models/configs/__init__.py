"""The settings of each family, read from a config.json. Free of torch: the supervisor checks them."""
