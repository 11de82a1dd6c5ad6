"""TLS of a target."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Final

from exporter.network.grpc_core import grpc
from exporter.triton import tls_files
from loadtests.errors import LoadError, PlanError

if TYPE_CHECKING:
    from loadtests.target import Target

_CONNECT_SECONDS: Final = 10.0


def ssl_context(target: Target) -> ssl.SSLContext | None:
    """Return the TLS context for HTTP; None without TLS.

    Raises:
        PlanError: the file of certificates cannot be read.
    """
    if target.ca_file is None:
        return None
    try:
        return tls_files.ssl_context(target.ca_file or None)
    except (OSError, ssl.SSLError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise PlanError(
            f"{target.ca_file} cannot be used: {reason}; want certificates in PEM"
        ) from None


def grpc_credentials(target: Target) -> grpc.ChannelCredentials | None:
    """Return the TLS credentials for gRPC; None without TLS.

    Raises:
        PlanError: the file of certificates cannot be read.
    """
    if target.ca_file is None:
        return None
    ssl_context(target)  # grpc would only report a broken file at the first call
    roots = Path(target.ca_file).read_bytes() if target.ca_file else None
    return grpc.ssl_channel_credentials(root_certificates=roots)


def require_trusted(target: Target) -> None:
    """Make one TLS handshake: errors of HTTP and gRPC clients do not show its problem.

    A server that cannot be reached is not reported here, but by the client.

    Raises:
        LoadError: its certificate is refused, or it does not use TLS.
        PlanError: the file of certificates cannot be read.
    """
    context = ssl_context(target)
    if context is None:
        return
    place = (target.host, target.port)
    try:
        with (
            socket.create_connection(place, _CONNECT_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=target.host),
        ):
            return
    except ssl.SSLCertVerificationError as error:
        vouching = target.ca_file or "the system"
        raise LoadError(
            f"{target.address}: {reason_of(error)}; want a certificate signed by "
            f"{vouching}, valid today and for {target.host}"
        ) from None
    except ssl.SSLError as error:
        raise LoadError(
            f"{target.address} does not use TLS: {reason_of(error)}; leave out --ca-file "
            "or use its TLS port"
        ) from None
    except OSError:
        return


def reason_of(error: BaseException) -> str:
    """Return why there is no connection."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message.rstrip('.')}"
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None)
    return str(reason or error) or type(error).__name__
