"""Files of what drivers answered: JSON, compressed where the name says so; it needs no package but Python."""

import json
import lzma
from pathlib import Path
from typing import Any


def load(path: Path) -> dict[str, Any]:
    """The content of a recording."""
    data = path.read_bytes()
    return dict(json.loads(lzma.decompress(data) if path.suffix == ".xz" else data))


def save(path: Path, content: Any) -> None:
    """Write a recording, with a line for each row."""
    text = json.dumps(content, separators=(",", ":")).replace("},{", "},\n{") + "\n"
    path.write_bytes(lzma.compress(text.encode(), preset=9) if path.suffix == ".xz" else text.encode())
