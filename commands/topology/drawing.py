"""A picture of a topology: chips at their coordinates, clients by colour, rings as paths. Shapes, then SVG. Pure."""

from __future__ import annotations

import colorsys
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree as ET

import numpy as np

from ...devices.topology.axes import Int32Array, Int64Array
from ...devices.topology.hops import hops_between
from ...devices.topology.mesh import Mesh
from ...devices.topology.topology import Topology

_PITCH = 64.0
"""The distance of two chips' centres, in picture units."""
_CHIP = 44.0
_CORE_APART = 11.0
_CORE_RADIUS = 3.0
_MARGIN = 40.0
_TITLE = 36.0
_BEND, _BEND_BETWEEN_PLANES = 0.16, 0.06
"""The height of a longer hop's bow, as a part of its length: it passes beside the chips between its ends."""
_CURVE_POINTS = 24
_GOLDEN = 0.618033988749895
"""Multiples of it, modulo 1, are far from each other: hues of clients."""
_NAMESPACE = "http://www.w3.org/2000/svg"
_TEXT = "#222222"
_STROKE = "2.4"

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Box:
    """A filled square with a tooltip; `x` and `y` are its upper left corner."""

    x: float
    y: float
    size: float
    fill: str
    tip: str


@dataclass(frozen=True, slots=True)
class Dot:
    """A filled circle with a tooltip; `x` and `y` are its centre."""

    x: float
    y: float
    radius: float
    tip: str


@dataclass(frozen=True, slots=True)
class Path:
    """A line through points; dashed where it leaves its plane."""

    points: tuple[Point, ...]
    colour: str
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Label:
    """A text; its baseline begins at a point, or has its middle there."""

    x: float
    y: float
    text: str
    size: float
    centred: bool = False


Shape = Box | Dot | Path | Label


@dataclass(frozen=True, slots=True)
class Drawing:
    """A picture: its size, and its shapes in drawing order."""

    width: float
    height: float
    title: str
    shapes: tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class _Panels:
    """The layout of the picture: one panel for the plane of each z, in rows."""

    extents: Sequence[int]

    @property
    def columns(self) -> int:
        """The number of panels in a row, which makes the picture about twice as wide as high."""
        x, y, z, _ = self.extents
        return max(1, min(z, round(math.sqrt(2 * z * (y + 1) / (x + 1)))))

    @property
    def panel(self) -> Point:
        return self.extents[0] * _PITCH + _MARGIN, self.extents[1] * _PITCH + _MARGIN

    @property
    def size(self) -> Point:
        width, height = self.panel
        rows = -(-self.extents[2] // self.columns)
        return _MARGIN + self.columns * width, _MARGIN + _TITLE + rows * height

    def corner(self, z: int) -> Point:
        row, column = divmod(z, self.columns)
        width, height = self.panel
        return _MARGIN + column * width, _MARGIN + _TITLE + row * height

    def chip(self, place: Int32Array | Int64Array) -> Point:
        """The centre of a chip."""
        x, y = self.corner(int(place[2]))
        return x + (int(place[0]) + 0.5) * _PITCH - _PITCH / 4, y + (int(place[1]) + 0.5) * _PITCH - _PITCH / 4

    def core(self, place: Int32Array | Int64Array) -> Point:
        """The centre of the core of a place, on its chip."""
        x, y = self.chip(place)
        off = (int(place[3]) - (self.extents[3] - 1) / 2) * _CORE_APART
        return x + off, y + off


def draw(topology: Topology, mesh: Mesh | None = None, ring_dims: Sequence[str] = ()) -> Drawing:
    """Draw a topology, and the rings of a mesh along `ring_dims` where there is one."""
    panels = _Panels(topology.extents)
    width, height = panels.size
    title = _title(topology, mesh, ring_dims)
    shapes: list[Shape] = [Label(_MARGIN, _MARGIN, title, 16.0)]
    shapes += _planes(topology, panels)
    shapes += _chips(topology, panels)
    shapes += _devices(topology, panels)
    if mesh is not None and ring_dims:
        shapes += _rings(mesh, ring_dims, panels)
    return Drawing(max(width, 2 * _MARGIN + 8.0 * len(title)), height, title, tuple(shapes))


def _title(topology: Topology, mesh: Mesh | None, ring_dims: Sequence[str]) -> str:
    extents = "x".join(map(str, topology.extents))
    text = (
        f"{extents}: {topology.num_devices} devices of {topology.num_clients} client{'s' * (topology.num_clients != 1)}"
    )
    if mesh is None or not ring_dims:
        return text
    dims = ", ".join(f"{name}={size}" for name, size in zip(mesh.dim_names, mesh.shape, strict=True))
    hops = int(mesh.ring_hops(*ring_dims).sum())
    return f"{text}; mesh {dims}; rings along {' and '.join(ring_dims)}, {hops} hops in all"


def _planes(topology: Topology, panels: _Panels) -> Iterator[Label]:
    if topology.extents[2] > 1:
        for z in range(topology.extents[2]):
            x, y = panels.corner(z)
            yield Label(x, y - 8.0, f"z = {z}", 12.0)


def _chips(topology: Topology, panels: _Panels) -> Iterator[Shape]:
    places = topology.locations.astype(np.int64)
    chips, first = np.unique(places[:, :3], axis=0, return_index=True)
    clients = topology.client_ids()
    for chip, row in zip(chips, first, strict=True):
        x, y = panels.chip(places[row])
        client = int(clients[row])
        tip = f"chip {tuple(chip.tolist())}, client {client}"
        yield Box(x - _CHIP / 2, y - _CHIP / 2, _CHIP, _colour(client, 0.80, 0.55), tip)
        yield Label(x + _CHIP / 2 - 8.0, y - _CHIP / 2 + 11.0, str(client), 10.0, centred=True)


def _devices(topology: Topology, panels: _Panels) -> Iterator[Dot]:
    clients = topology.client_ids().tolist()
    for row, (place, client) in enumerate(zip(topology.locations, clients, strict=True)):
        yield Dot(*panels.core(place), _CORE_RADIUS, f"device {row}, client {client}, {tuple(place.tolist())}")


def _rings(mesh: Mesh, ring_dims: Sequence[str], panels: _Panels) -> Iterator[Path]:
    for number, ring in enumerate(_rings_of(mesh, ring_dims)):
        colour = _colour(number, 0.32, 0.75)
        steps = hops_between(ring, np.roll(ring, -1, axis=0), mesh.topology.extents, ())
        for here, there, hops in zip(ring, np.roll(ring, -1, axis=0), steps, strict=True):
            if np.array_equal(here, there):
                continue
            ends = panels.core(here), panels.core(there)
            if here[2] != there[2]:
                yield Path(_bow(*ends, _BEND_BETWEEN_PLANES), colour, dashed=True)
            else:
                yield Path(ends if hops < 2 else _bow(*ends, _BEND), colour)


def _rings_of(mesh: Mesh, ring_dims: Sequence[str]) -> Int64Array:
    axes = [mesh.dim_names.index(dim) for dim in ring_dims]
    others = [axis for axis in range(len(mesh.shape)) if axis not in axes]
    places = mesh.locations.transpose(*others, *axes, len(mesh.shape)).astype(np.int64)
    return places.reshape(-1, math.prod(mesh.shape[axis] for axis in axes), 4)


def _bow(one: Point, other: Point, bend: float) -> tuple[Point, ...]:
    (x0, y0), (x1, y1) = one, other
    middle_x, middle_y = (x0 + x1) / 2 + bend * (y1 - y0), (y0 + y1) / 2 - bend * (x1 - x0)
    points = []
    for index in range(_CURVE_POINTS):
        t = index / (_CURVE_POINTS - 1)
        a, b, c = (1 - t) ** 2, 2 * t * (1 - t), t**2
        points.append((a * x0 + b * middle_x + c * x1, a * y0 + b * middle_y + c * y1))
    return tuple(points)


def _colour(number: int, lightness: float, saturation: float) -> str:
    """A colour far from those of neighbouring numbers."""
    red, green, blue = colorsys.hls_to_rgb(number * _GOLDEN % 1, lightness, saturation)
    return f"#{round(255 * red):02x}{round(255 * green):02x}{round(255 * blue):02x}"


def svg(drawing: Drawing) -> bytes:
    """The drawing as an SVG document, UTF-8."""
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
