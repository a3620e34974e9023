"""Opens the TLS of tunnels to which a credential belongs, and of no others.

The session has a certificate authority of its own. Its key lives in this process's memory and is never written down;
its certificate is given to the sandbox, and is of no use anywhere else. Each host gets a certificate when it is first
asked for. Towards the server the gateway is a common TLS client that trusts what the host trusts.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import os
import ssl
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from runner.gateway.names import BadName, Host, normalise
from runner.gateway.tunnel import Duplex
from runner.gateway.upstream import Link

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

VALID_DAYS = 7
"""A session's certificates outlive no week."""
HANDSHAKE_TIMEOUT = 15.0
"""Seconds for the sandbox's handshake."""
MAX_HOSTS = 256
"""Most hosts that get a certificate."""
TLS_READ = 64 * 1024


class Authority:
    """A session's certificate authority.

    Args:
        name: stands in its certificate, so that a person who sees it knows what it is.
    """

    def __init__(self, name: str = "sbx session") -> None:
        from cryptography.hazmat.primitives.asymmetric import ec

        self._key = ec.generate_private_key(ec.SECP256R1())
        self._leaf_key = ec.generate_private_key(ec.SECP256R1())
        self._name = name
        self._certificate = self._make_root()
        self._contexts: dict[str, ssl.SSLContext] = {}

    @property
    def pem(self) -> bytes:
        """Its certificate, for the sandbox's clients to trust."""
        from cryptography.hazmat.primitives.serialization import Encoding

        return self._certificate.public_bytes(Encoding.PEM)

    def context(self, host: Host) -> ssl.SSLContext:
        """A server's TLS context with a certificate for `host`. Raises OSError when there are too many hosts."""
        key = str(host)
        if key not in self._contexts:
            if len(self._contexts) >= MAX_HOSTS:
                raise OSError(f"more than {MAX_HOSTS} hosts with a credential")
            self._contexts[key] = self._make_context(host)
        return self._contexts[key]

    def _make_root(self) -> x509.Certificate:
        from cryptography import x509

        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, self._name)])
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        return self._sign(name, name, self._key.public_key(), x509.BasicConstraints(ca=True, path_length=0), [usage])

    def _make_context(self, host: Host) -> ssl.SSLContext:
        from cryptography import x509
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
        from cryptography.x509.oid import ExtendedKeyUsageOID

        alternative: x509.GeneralName = x509.DNSName(host) if isinstance(host, str) else x509.IPAddress(host)
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, str(host)[:64])])
        extensions: list[x509.ExtensionType] = [
            x509.SubjectAlternativeName([alternative]),
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]),
        ]
        leaf = self._sign(
            name,
            self._certificate.subject,
            self._leaf_key.public_key(),
            x509.BasicConstraints(ca=False, path_length=None),
            extensions,
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        context.sni_callback = _only(host)
        key = self._leaf_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        chain = leaf.public_bytes(Encoding.PEM) + self.pem
        _load(context, key + chain)
        return context

    def _sign(
        self,
        subject: x509.Name,
        issuer: x509.Name,
        key: ec.EllipticCurvePublicKey,
        constraints: x509.BasicConstraints,
        extensions: Sequence[x509.ExtensionType],
    ) -> x509.Certificate:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes

        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=VALID_DAYS))
            .add_extension(constraints, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        for extension in extensions:
            builder = builder.add_extension(extension, critical=isinstance(extension, x509.KeyUsage))
        return builder.sign(self._key, hashes.SHA256())


def _only(host: Host) -> Callable[[ssl.SSLObject, str | None, ssl.SSLContext], int | None]:
    """Refuses a handshake for another name than that of the tunnel."""

    def check(tls: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> int | None:
        try:
            same = normalise(name) == host if name else not isinstance(host, str)
        except BadName:
            same = False
        return None if same else ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME

    return check


def _load(context: ssl.SSLContext, pem: bytes) -> None:
    """Loads a key and its chain. `ssl` reads files only: this one is in memory and gone at once."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("certificate", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, pem)
            context.load_cert_chain(f"/proc/self/fd/{descriptor}")
        finally:
            os.close(descriptor)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "certificate.pem"
        path.touch(mode=0o600)
        path.write_bytes(pem)
        context.load_cert_chain(path)


class _Clear:
    """What is inside the TLS that a program in the sandbox speaks, as a duplex."""

    def __init__(self, outer: Duplex, context: ssl.SSLContext) -> None:
        self._outer = outer
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_side=True)
        self._lock = asyncio.Lock()

    async def handshake(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush()
                if not await self._feed():
                    raise OSError("the sandbox ended the TLS handshake") from None
            except ssl.SSLError:
                await self._flush()  # the alert
                raise
            else:
                await self._flush()
                return

    async def read(self) -> bytes:
        while True:
            try:
                return self._tls.read(TLS_READ)
            except ssl.SSLWantReadError:
                await self._flush()
                if not await self._feed():
                    return b""
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return b""

    async def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[self._tls.write(view[:TLS_READ]) :]
            await self._flush()

    def close(self) -> None:
        with contextlib.suppress(ssl.SSLError):
            self._tls.unwrap()

    async def finish(self) -> None:
        """Says goodbye in TLS."""
        self.close()
        await self._flush()

    async def _feed(self) -> bool:
        data = await self._outer.read()
        if data:
            self._in.write(data)
        else:
            self._in.write_eof()
        return bool(data)

    async def _flush(self) -> None:
        async with self._lock:
            if data := self._out.read():
                await self._outer.write(data)


@contextlib.asynccontextmanager
async def opened(outer: Duplex, authority: Authority, host: Host) -> AsyncIterator[Duplex]:
    """Takes the sandbox's TLS for `host`; yields what is inside.

    Raises:
        OSError: the handshake failed, or names another server.
    """
    context = authority.context(host)
    clear = _Clear(outer, context)
    async with asyncio.timeout(HANDSHAKE_TIMEOUT):
        await clear.handshake()
    try:
        yield clear
    finally:
        with contextlib.suppress(OSError):
            await clear.finish()


class ServerTls:
    """Starts TLS towards servers, with what the host trusts.

    Args:
        make: makes the context; a company's or a test's authority is added there.
    """

    def __init__(self, make: Callable[[], ssl.SSLContext] = ssl.create_default_context) -> None:
        self._make = make
        self._context: ssl.SSLContext | None = None

    async def __call__(self, link: Link, host: str) -> Link:
        """The same link with TLS on it. Raises OSError (ssl.SSLError) when the server cannot show that it is `host`."""
        if self._context is None:
            self._context = self._make()
            self._context.set_alpn_protocols(["http/1.1"])
        await link.writer.start_tls(self._context, server_hostname=host)
        return link
