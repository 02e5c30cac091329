"""Tls: how a client proves itself to the servers, and they to it."""

from __future__ import annotations

import ssl
from os import PathLike, fspath
from pathlib import Path
from typing import NoReturn, TypeAlias

File: TypeAlias = str | PathLike[str]


def tls_context(
    *,
    ca: File | None = None,
    certfile: File | None = None,
    keyfile: File | None = None,
    keyfile_password: str | None = None,
    check_hostname: bool = True,
    verify: bool = True,
) -> ssl.SSLContext:
    """A context for clients: TLS 1.2 or later. The files are read here, and the password is not kept.

    Raises ValueError for what does not fit together or cannot be used, FileNotFoundError for a file that is missing.
    """
    if check_hostname and not verify:
        raise ValueError("verify=False cannot check host names: say check_hostname=False as well, if you mean it")
    if certfile is None and (keyfile is not None or keyfile_password is not None):
        raise ValueError("keyfile= and keyfile_password= belong to a certfile=")
    for file in (ca, certfile, keyfile):
        if file is not None and not Path(file).exists():
            raise FileNotFoundError(f"{fspath(file)} is not there")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if ca is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:  # this authority, and none of those that the whole world trusts
        folder = Path(ca).is_dir()
        try:
            context.load_verify_locations(cafile=None if folder else ca, capath=ca if folder else None)
        except ssl.SSLError as error:
            raise ValueError(f"ca={fspath(ca)!r} has no certificates in PEM form ({error.reason})") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = check_hostname
    context.verify_mode = ssl.CERT_REQUIRED if verify else ssl.CERT_NONE
    if certfile is not None:
        try:
            context.load_cert_chain(certfile, keyfile, keyfile_password or _no_password)
        except ssl.SSLError as error:
            raise ValueError(
                f"certfile={fspath(certfile)!r} and its key cannot be used ({error.reason}): both must be PEM and "
                "belong together, and the password must be right"
            ) from None
    return context


def _no_password() -> NoReturn:
    # Without this OpenSSL would ask for it on the terminal.
    raise ValueError("the key is encrypted: say keyfile_password=")
