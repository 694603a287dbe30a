"""The tools of the agent support: agents call them by name while this program runs."""

from typing import TypedDict

from turnpike import ToolError, serve, tool

ORDERS = {"A-17": (240.0, "late"), "A-18": (31.5, "delivered")}  # your database


class Order(TypedDict):
    price: float
    status: str


@tool
def lookup_order(order: str) -> Order:
    """Looks an order up by its number, such as A-17."""
    if order not in ORDERS:
        raise ToolError(f"There is no order {order}.")
    price, status = ORDERS[order]
    return {"price": price, "status": status}


@tool
def refund(order: str, amount: float) -> str:
    """Pays money back for an order."""
    # Turnpike calls a tool that is not idempotent at most once: pass its key on to your payment provider.
    return f"Paid {amount:g} for {order}."


serve(lookup_order, refund)
