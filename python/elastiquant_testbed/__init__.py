"""Published experiments, rebuilt on emulated devices and networks: `elastiquant testbed`."""
