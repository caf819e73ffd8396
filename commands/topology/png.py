"""A drawing as PNG, with Pillow, which is in the extra `picture`."""

from __future__ import annotations

import io
import math
from itertools import pairwise
from typing import TYPE_CHECKING

from ...errors import ConfigurationError
from .drawing import Box, Dot, Drawing, Label, Path, Shape

if TYPE_CHECKING:
    from PIL import ImageDraw

_PIXELS_MAX = 12_000
"""Of the longer side, before it is made smaller again."""
_OVERSAMPLING = 2
_TEXT = "#222222"


def png(drawing: Drawing) -> bytes:
    """Return the drawing as a PNG file.

    Raises:
        ConfigurationError: Pillow is not installed.
    """
    try:
        from PIL import Image, ImageDraw
    except ImportError:
        raise ConfigurationError(
            "--png needs Pillow, which is not installed: pip install 'bringup[picture]', or write --svg"
        ) from None
    scale = min(2.0 * _OVERSAMPLING, _PIXELS_MAX / max(drawing.width, drawing.height))
    image = Image.new("RGB", (math.ceil(drawing.width * scale), math.ceil(drawing.height * scale)), "white")
    canvas = ImageDraw.Draw(image)
    for shape in drawing.shapes:
        _add(canvas, shape, scale)
    small = image.resize((image.width // _OVERSAMPLING, image.height // _OVERSAMPLING), Image.Resampling.LANCZOS)
    file = io.BytesIO()
    small.save(file, "PNG")
    return file.getvalue()


def _add(canvas: ImageDraw.ImageDraw, shape: Shape, scale: float) -> None:
    match shape:
        case Box():
            corners = [shape.x, shape.y, shape.x + shape.size, shape.y + shape.size]
            scaled = [scale * at for at in corners]
            canvas.rounded_rectangle(scaled, 5 * scale, fill=shape.fill, outline="#999999", width=max(1, round(scale)))
        case Dot():
            canvas.circle((shape.x * scale, shape.y * scale), shape.radius * scale, fill=_TEXT)
        case Path():
            points = [(x * scale, y * scale) for x, y in shape.points]
            pieces = [*pairwise(points)][::2] if shape.dashed else [points]
            for piece in pieces:
                canvas.line(piece, fill=shape.colour, width=max(1, round(2.4 * scale)), joint="curve")
        case Label():
            from PIL import ImageFont

            font = ImageFont.load_default(size=shape.size * scale)
            anchor = "ms" if shape.centred else "ls"
            canvas.text((shape.x * scale, shape.y * scale), shape.text, fill=_TEXT, font=font, anchor=anchor)
