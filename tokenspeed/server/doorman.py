"""Who may come in: keys, and without keys the names and pages from which a browser may ask.

Owns the decision before any route is looked at. With keys, every route needs one but for the probes.
Without, whoever reaches the port may ask; but a web page must not, neither from another origin nor
under a name of its own that points here (DNS rebinding). Admin routes take the admin key alone.

Invariant: a request that passes has its tenant set, and no work was done for one that does not.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from tokenspeed.config import AccessConfig
from tokenspeed.errors import UserError
from tokenspeed.server.errors import error_response
from tokenspeed.server.keys import Keyring
from tokenspeed.server.tenants import tenant_of_request

OPEN_PATHS = ("/health", "/ready")
METRICS_PATH = "/metrics"
ADMIN_PATHS = ("/flush_cache", "/stats", "/requests")
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
ANY = "*"


class Access:
    """The decision. `host` is the address listened on."""

    def __init__(self, config: AccessConfig, host: str) -> None:
        self.keys = Keyring(config.api_keys, config.api_key_file)
        self._admin = Keyring((config.admin_key,) if config.admin_key else ())
        self._open_metrics = config.open_metrics
        self._origins = frozenset(config.allowed_origins)
        self._hosts = frozenset(map(str.lower, (*LOOPBACK_NAMES, *config.allowed_hosts, *_own_names(host))))
        self._takes_addresses = _is_wildcard(host)

    def is_admin(self, headers: Headers) -> bool:
        """Tell whether the caller has the admin key."""
        key = presented_key(headers)
        return key is not None and self._admin.tenant(key) is not None

    def tells_all(self, headers: Headers) -> bool:
        """Tell whether the caller may learn what others do: there are no others, or it is the admin."""
        return not self.keys or self.is_admin(headers)

    def check(self, path: str, headers: Headers) -> str:
        """Return the caller's tenant; raise `UserError` (401 or 403) if it may not come in."""
        if not self.keys:
            self._check_host(headers)
            self._check_origin(headers)
        if path in ADMIN_PATHS or (path == METRICS_PATH and self.keys and not self._open_metrics):
            self._check_admin(path, headers)
            return ""
        if path in (*OPEN_PATHS, METRICS_PATH) or not self.keys:
            return ""
        return self._check_key(headers)

    def _check_key(self, headers: Headers) -> str:
        key = presented_key(headers)
        if key is None:
            raise _unauthorized("The request has no key; send 'Authorization: Bearer KEY' or 'x-api-key: KEY'.")
        tenant = self.keys.tenant(key)
        if tenant is None:
            raise _unauthorized("The key is not valid here.")
        return tenant

    def _check_admin(self, path: str, headers: Headers) -> None:
        if not self._admin:
            flag = "--admin-key or --open-metrics" if path == METRICS_PATH else "--admin-key"
            raise UserError(
                f"{path} is closed over HTTP; use the Unix socket, or start the server with {flag}.",
                status=403,
                code="admin_only",
            )
        if not self.is_admin(headers):
            raise _unauthorized(f"{path} needs the admin key; send 'Authorization: Bearer KEY' or 'x-api-key: KEY'.")

    def _check_host(self, headers: Headers) -> None:
        host = headers.get("host")
        if host is None or ANY in self._hosts:
            return  # HTTP/1.0: no browser
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() and ":" in host else host
        name = name.lower()
        if name in self._hosts or host.lower() in self._hosts or (self._takes_addresses and _is_address(name)):
            return
        raise UserError(
            f"The host {host[:100]!r} is not allowed on a server without keys; start it with --allowed-hosts "
            f"{name[:100]}, or with --api-key-file.",
            status=403,
            code="host_not_allowed",
        )

    def _check_origin(self, headers: Headers) -> None:
        origin = headers.get("origin")
        if origin is None or origin in self._origins or ANY in self._origins:
            return
        raise UserError(
            f"The origin {origin[:100]!r} is not allowed on a server without keys; start it with --allowed-origins "
            f"{origin[:100]}, or with --api-key-file.",
            status=403,
            code="origin_not_allowed",
        )


class Doorman:
    """The middleware."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or answer why not."""
        headers = Headers(scope=scope)
        try:
            tenant = self._access.check(scope["path"], headers)
        except UserError as error:
            extra = {"www-authenticate": "Bearer"} if error.status == 401 else {}
            await error_response(error, extra)(scope, receive, send)
        else:
            scope["state"]["tells_all"] = self._access.tells_all(headers)
            tenant_of_request.set(tenant)
            await self._app(scope, receive, send)


def presented_key(headers: Headers) -> bytes | None:
    """Return the key of a request, None if it has none."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not key.strip():
        key = headers.get("x-api-key", "")
    return key.strip().encode("latin-1") or None


def _unauthorized(message: str) -> UserError:
    return UserError(message, status=401, code="invalid_api_key")


def _own_names(host: str) -> Iterable[str]:
    """Return the names under which a server on `host` is meant; a browser finds no page under them."""
    if _is_wildcard(host):
        return (socket.gethostname(),)
    return (f"[{host}]" if ":" in host else host,)


def _is_wildcard(host: str) -> bool:
    return host in ("", "0.0.0.0", "::")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True
