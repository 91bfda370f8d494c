"""The linker's two backends: nvJitLink and the driver."""
