"""TLS of a target."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import TYPE_CHECKING

import grpc

from loadtests.errors import PlanError

if TYPE_CHECKING:
    from loadtests.target import Target


def ssl_context(target: Target) -> ssl.SSLContext | None:
    """For HTTP; None without TLS.

    Raises:
        PlanError: the file of certificates cannot be read.
    """
    if target.ca_file is None:
        return None
    try:
        return ssl.create_default_context(cafile=target.ca_file or None)
    except (OSError, ssl.SSLError) as error:
        raise _unreadable(target.ca_file, error) from None


def grpc_credentials(target: Target) -> grpc.ChannelCredentials | None:
    """For gRPC; None without TLS.

    Raises:
        PlanError: the file of certificates cannot be read.
    """
    if target.ca_file is None:
        return None
    ssl_context(target)  # grpc would only say at the first call that a file is broken
    roots = Path(target.ca_file).read_bytes() if target.ca_file else None
    return grpc.ssl_channel_credentials(root_certificates=roots)


def _unreadable(file: str, error: Exception) -> PlanError:
    reason = getattr(error, "strerror", None) or type(error).__name__
    return PlanError(f"{file} cannot be used: {reason}; want certificates in PEM")
