"""A tool: agents call it by its name while this program runs."""

from typing import Annotated, TypedDict

from turnpike import ToolError, serve, tool

METERS = {"m": 1, "km": 1000, "ft": 0.3048, "mi": 1609.344}


class Length(TypedDict):
    value: float
    unit: str


@tool
def convert(value: float, unit: Annotated[str, "of the value: m, km, ft or mi"], to: Annotated[str, "unit to convert to"]) -> Length:
    """Converts a length to another unit."""
    for u in (unit, to):
        if u not in METERS:
            raise ToolError(f'Unknown unit "{u}": use m, km, ft or mi.')
    return {"value": float(f"{value * METERS[unit] / METERS[to]:.10g}"), "unit": to}


serve(convert)
