from cuda import pathfinder
from cuda.bindings import nvjitlink

print("nvJitLink", *nvjitlink.version(), "and the libcudadevrt.a of CUDA 13.0")
handle = nvjitlink.create(1, ["-arch=sm_90"])
nvjitlink.add_file(handle, nvjitlink.InputType.LIBRARY, pathfinder.find_static_lib("cudadevrt"))
nvjitlink.complete(handle)
print("linked:", nvjitlink.get_linked_cubin_size(handle), "bytes")
