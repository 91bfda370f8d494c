"""The kind of finding that a fault sweep must report for each bug of `error_paths`, which opens the driver."""

PLANTED = {
    "two_buffers": "leak",
    "stream_and_event": "leak",
    "copy_of_a_buffer": "leak",
    "graph_with_a_node": "leak",
    "link": "leak",
    "pinned_and_device": "leak",
    "registered_memory": "leak",
    "module_without_its_kernel": "leak",
    "clean_up_that_stops": "leak",
    "fill_without_a_look": "swallowed",
    "wait_without_a_look": "swallowed",
    "record_that_may_fail": "swallowed",
    "attribute_with_a_default": "swallowed",
    "copy_that_is_not_compared": "swallowed",
    "error_from_none": "no-cause",
    "nothing_instead_of_a_stream": "no-cause",
    "every_error_is_one": "no-cause",
    "memory_that_is_not_there": "crash",
    "asking_for_ever": "hang",
    "flag_that_stays": "later",
}
