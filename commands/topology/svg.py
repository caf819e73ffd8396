"""A drawing as SVG."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from .drawing import Box, Dot, Drawing, Label, Path, Shape

_NAMESPACE = "http://www.w3.org/2000/svg"
_TEXT = "#222222"
_STROKE = "2.4"


def svg(drawing: Drawing) -> bytes:
    """Return the drawing as an SVG document, UTF-8."""
    size = (f"{drawing.width:g}", f"{drawing.height:g}")
    root = ET.Element(
        "svg",
        {
            "xmlns": _NAMESPACE,
            "width": size[0],
            "height": size[1],
            "viewBox": f"0 0 {size[0]} {size[1]}",
            "font-family": "sans-serif",
        },
    )
    ET.SubElement(root, "title").text = drawing.title
    ET.SubElement(root, "rect", {"width": "100%", "height": "100%", "fill": "white"})
    for shape in drawing.shapes:
        _add(root, shape)
    document: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return document


def _add(root: ET.Element, shape: Shape) -> None:
    match shape:
        case Box():
            side = f"{shape.size:g}"
            box = {"x": f"{shape.x:g}", "y": f"{shape.y:g}", "width": side, "height": side, "rx": "5"}
            element = ET.SubElement(root, "rect", {**box, "fill": shape.fill, "stroke": "#999999"})
            ET.SubElement(element, "title").text = shape.tip
        case Dot():
            dot = {"cx": f"{shape.x:g}", "cy": f"{shape.y:g}", "r": f"{shape.radius:g}", "fill": _TEXT}
            ET.SubElement(ET.SubElement(root, "circle", dot), "title").text = shape.tip
        case Path():
            points = " ".join(f"{x:.1f},{y:.1f}" for x, y in shape.points)
            dashes = {"stroke-dasharray": "6 4"} if shape.dashed else {}
            line = {"fill": "none", "stroke": shape.colour, "stroke-width": _STROKE, "stroke-linecap": "round"}
            ET.SubElement(root, "polyline", {"points": points, **line, **dashes})
        case Label():
            anchor = {"text-anchor": "middle"} if shape.centred else {}
            place = {"x": f"{shape.x:g}", "y": f"{shape.y:g}", "font-size": f"{shape.size:g}", "fill": _TEXT}
            ET.SubElement(root, "text", {**place, **anchor}).text = shape.text
