"""What is loaded into this process, who opened it, which of its calls wait, and how it ends."""
