"""The C compiler that builds the native libraries."""
