"""The output of `bringup topology`: a topology and the cost of a mesh, on a terminal and as JSON."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ...devices.topology.mesh import Mesh
from ...devices.topology.topology import Topology
from ..demo.tables import topology_picture

_LEGEND = (
    "A ring is a line of devices along one dimension of the mesh, closed to a circle; a hop is a link between "
    "neighbouring chips. Dimensions without a name are called d0, d1, ..."
)


def as_object(topology: Topology, mesh: Mesh | None, best: Mesh | None) -> dict[str, Any]:
    """The topology and the mesh, for JSON."""
    return {
        **topology.to_json(),
        "num_clients": topology.num_clients,
        "num_devices": topology.num_devices,
        "num_missing": topology.num_missing,
        "wrap": list(topology.wrap),
        "mesh": None if mesh is None else _mesh_object(mesh),
        "best_cost": None if best is None else best.cost,
    }


def _mesh_object(mesh: Mesh) -> dict[str, Any]:
    return {
        "shape": list(mesh.shape),
        "dim_names": list(mesh.dim_names),
        "device_ids": mesh.device_ids.tolist(),
        "cost": mesh.cost,
        "dims": [
            {
                "name": name,
                "size": mesh.dim_size(name),
                "rings": hops.size,
                "hops": int(hops.sum()),
                "hops_of_a_ring": [int(hops.min()), int(hops.max())],
                "longest_hop": int(mesh.hops(name).max()),
            }
            for name in mesh.dim_names
            for hops in [mesh.ring_hops(name)]
        ],
    }


def show(topology: Topology, mesh: Mesh | None, best: Mesh | None, console: Console) -> None:
    """Print the picture, and the cost of the mesh."""
    around = f", wrapping around in {', '.join(topology.wrap)}" if topology.wrap else ""
    console.print(
        Text(
            f"Topology: mesh shape {list(topology.extents)}{around}; {topology.num_devices} devices of "
            f"{topology.num_clients} clients; which client holds the chip at x, y",
            style="italic",
        ),
        soft_wrap=True,
    )
    for line in topology_picture(topology.to_json()):
        console.print(line)
    if topology.num_missing:
        console.print(
            Text(f"{topology.num_missing} places have no device: no mesh can be made.", style="yellow"), soft_wrap=True
        )
    if mesh is not None:
        console.print()
        console.print(_mesh_table(mesh))
        console.print(Text(_LEGEND, style="dim"))
        console.print(Text(_verdict(mesh, best)), soft_wrap=True)


def _mesh_table(mesh: Mesh) -> Table:
    table = Table(title=f"Mesh {'x'.join(map(str, mesh.shape))}", title_justify="left", title_style="italic")
    for heading in ("dimension", "size", "rings", "hops of a ring", "longest hop", "hops in all"):
        table.add_column(heading, justify="left" if heading == "dimension" else "right", no_wrap=True)
    for dim in _mesh_object(mesh)["dims"]:
        fewest, most = dim["hops_of_a_ring"]
        of_a_ring = str(most) if fewest == most else f"{fewest} to {most}"
        numbers = (dim["size"], dim["rings"], of_a_ring, dim["longest_hop"], dim["hops"])
        table.add_row(Text(dim["name"]), *map(str, numbers))
    return table


def _verdict(mesh: Mesh, best: Mesh | None) -> str:
    total = f"This mesh has {mesh.cost} hops in all"
    if best is None:
        return f"{total}."
    if best.cost < mesh.cost:
        return f"{total}; the best that was found for this shape has {best.cost} (--best)."
    return f"{total}; none better was found for this shape."
