"""Which calls wait in each deadlock of this folder, which opens the driver."""

NAMED = {
    "load_beside_a_copy": ("cuModuleLoadData", "cuMemcpyHtoDAsync_v2"),
    "free_beside_a_pageable_copy": ("cuMemFree_v2", "cuMemcpyDtoH_v2"),
    "pinned_memory_freed_at_a_gate": ("cuMemFreeHost",),
    "first_use_of_a_kernel_at_a_gate": ("cuKernelGetFunction",),
    "first_use_of_a_kernel_by_the_opener": ("cuStreamSynchronize", "cuKernelGetFunction"),
    "stream_that_its_own_thread_would_open": ("cuStreamSynchronize",),
    "events_of_two_threads": ("cuEventSynchronize", "cuEventSynchronize"),
    "copy_behind_a_blocking_stream": ("cuMemcpyHtoD_v2",),
    "filling_of_pinned_memory": ("cuMemsetD8_v2",),
    "host_function_that_needs_a_held_lock": ("cuStreamSynchronize",),
    "limit_raised_at_a_gate": ("cuCtxSetLimit",),
    "copy_to_pageable_memory_beside_a_new_stream": ("cuMemcpyDtoHAsync_v2", "cuStreamCreate"),
}
