"""The real peer: sealing, members, durable custody, links, the service and the cluster."""

__all__: list[str] = []
