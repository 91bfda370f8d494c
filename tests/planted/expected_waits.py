"""Which call of each hidden or undocumented wait must be named; nothing here opens the driver."""

#: By function of `hidden_waits`, the driver function that waits in it.
WAITS = {
    "buffer_freed": "cuMemFree_v2",
    "staging_freed": "cuMemFreeHost",
    "pages_unregistered": "cuMemHostUnregister",
    "result_to_pageable_memory": "cuMemcpyDtoHAsync_v2",
    "number_read_back": "cuMemcpyDtoH_v2",
    "parameters_sent": "cuMemcpyHtoD_v2",
    "large_batch_sent": "cuMemcpyHtoDAsync_v2",
    "pinned_memory_cleared": "cuMemsetD8_v2",
    "array_destroyed": "cuArrayDestroy",
    "stack_enlarged": "cuCtxSetLimit",
    "module_loaded": "cuModuleLoadData",
    "first_use_of_a_kernel": "cuKernelGetFunction",
    "event_awaited": "cuEventSynchronize",
    "stream_drained": "cuStreamSynchronize",
}

#: By function of `undocumented_waits`, the driver function whose wait it relies on.
RELIES = {
    "red_zone_checked": "cuMemFreeHost",
    "temporary_given_back": "cuMemFree_v2",
    "message_sent": "cuMemcpyHtoDAsync_v2",
    "message_unmapped": "cuMemcpyHtoDAsync_v2",
    "batch_sent": "cuMemcpyHtoDAsync_v2",
    "result_read_back": "cuMemcpyDtoHAsync_v2",
    "managed_result_read_back": "cuMemcpy",
    "array_dropped": "cuArrayDestroy",
    "plugin_unloaded": "cuModuleUnload",
    "scratch_freed_behind": "cuMemFree_v2",
}
