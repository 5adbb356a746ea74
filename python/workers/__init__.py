"""Workers: own the devices and run the plans of an engine core. Import wire and actors, never engine_core."""
