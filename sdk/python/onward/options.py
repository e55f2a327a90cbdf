"""Connection options: the URL of the server, the token and the scope of requests."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

DEFAULT_SERVER = "http://127.0.0.1:7400"
"""The address on which `onward dev` and `onward serve` listen by default."""


@dataclass(frozen=True)
class ConnectionOptions:
    """How to connect to a server. Server and token default to the environment."""

    server: str = field(default_factory=lambda: os.environ.get("ONWARD_SERVER") or DEFAULT_SERVER)
    token: str | None = field(
        default_factory=lambda: os.environ.get("ONWARD_TOKEN") or None, repr=False
    )
    tenant: str | None = None
    project: str | None = None
    environment: str | None = None

    def headers(self) -> dict[str, str]:
        """Returns the headers of every request."""
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        scope = {"tenant": self.tenant, "project": self.project, "environment": self.environment}
        headers.update({f"onward-{part}": name for part, name in scope.items() if name})
        return headers


def connection_options(
    server: str | None, token: str | None, scope: dict[str, str | None]
) -> ConnectionOptions:
    """Builds the options from the given arguments, and from the environment for the others."""
    arguments = {"server": server, "token": token, **scope}
    return ConnectionOptions(**{name: value for name, value in arguments.items() if value})
