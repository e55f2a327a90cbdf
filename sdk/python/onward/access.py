"""Where the server is, and who asks."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

SERVER = "http://127.0.0.1:7400"
"""Where `onward dev` and `onward serve` listen unless told."""


@dataclass(frozen=True)
class Access:
    """Where the server is, and who asks. What is not given comes from the environment."""

    server: str = field(default_factory=lambda: os.environ.get("ONWARD_SERVER") or SERVER)
    token: str | None = field(default_factory=lambda: os.environ.get("ONWARD_TOKEN") or None, repr=False)
    tenant: str | None = None
    project: str | None = None
    environment: str | None = None

    def headers(self) -> dict[str, str]:
        """What every request carries."""
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        scope = {"tenant": self.tenant, "project": self.project, "environment": self.environment}
        headers.update({f"onward-{part}": name for part, name in scope.items() if name})
        return headers


def access(server: str | None, token: str | None, scope: dict[str, str | None]) -> Access:
    """Access with what was given, and the environment for the rest."""
    given = {"server": server, "token": token, **scope}
    return Access(**{name: text for name, text in given.items() if text})
