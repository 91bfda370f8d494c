"""Tests in processes of their own: the parent, the child, and the processes between them."""
