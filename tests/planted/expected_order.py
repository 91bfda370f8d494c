"""What must find each bug of this folder, which opens the driver."""

#: For each bug of `order_bugs` the pair that the check of order names, as (what the first does, the calls of the two),
#: or None where only a schedule shows it: the host itself reads or writes memory, which no driver sees.
ORDER = {
    "missing_edge": ("writes", "cuMemsetD8Async", "cuMemcpyDtoDAsync_v2"),
    "event_recorded_too_early": ("writes", "cuMemsetD8Async", "cuMemcpyDtoHAsync_v2"),
    "event_on_the_wrong_stream": ("writes", "cuMemsetD8Async", "cuMemcpyDtoHAsync_v2"),
    "wait_before_record": ("writes", "cuMemsetD8Async", "cuMemcpyDtoHAsync_v2"),
    "event_recorded_again": ("writes", "cuMemsetD8Async", "cuMemcpyDtoHAsync_v2"),
    "non_blocking_beside_legacy": ("writes", "cuMemsetD8Async", "cuMemcpyDtoHAsync_v2"),
    "pageable_upload_read_on_another_stream": ("writes", "cuMemcpyHtoD_v2", "cuMemcpyDtoHAsync_v2"),
    "stream_of_the_thread_beside_another": ("writes", "cuMemsetD8Async", "cuMemcpyDtoHAsync_v2"),
    "source_freed_too_early": ("reads", "cuMemcpyHtoDAsync_v2", "cuMemFreeHost"),
    "unregistered_too_early": ("reads", "cuMemcpyHtoDAsync_v2", "cuMemHostUnregister"),
    "freed_on_another_stream": ("reads", "cuMemcpyDtoHAsync_v2", "cuMemFreeAsync"),
    "allocation_used_on_another_stream": ("allocates", "cuMemAllocAsync", "cuMemsetD8Async"),
    "cached_memory_on_another_stream": ("reads", "cuMemcpyDtoHAsync_v2", "cuMemsetD8Async"),
    "graph_without_an_edge": ("writes", "cuGraphLaunch", "cuGraphLaunch"),
    "double_buffer_off_by_one": ("reads", "cuMemcpyDtoDAsync_v2", "cuMemsetD8Async"),
    "word_written_too_early": ("writes", "cuMemsetD8Async", "cuMemcpyDtoHAsync_v2"),
    "destination_read_before_the_copy_ended": None,
    "source_written_before_the_copy_ended": None,
    "ring_of_staging_buffers": None,
    "host_function_reads_what_is_reused": None,
    "flag_of_another_stream": None,
}
