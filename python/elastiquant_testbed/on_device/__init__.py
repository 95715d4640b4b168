"""Trains as `elastiquant train` does, on a GPU: the same options, and the same files in --out.

Under an all-reduce and in rounds of local steps all workers are in one process, and the
package's VirtualWorkers make the means of what they send, with the codecs, exchanges and bytes
of workers on machines of their own. Under gossip each worker is a process with the package's
Gossip. Order and augmentation of the images have other random numbers than `train` has, and
evaluations of fp32 and bf16 alike are in fp32.
"""
