"""Certificates for programs that read no PEM file: Java's truststore."""

from __future__ import annotations

import ssl
import warnings
from collections.abc import Sequence


def truststore(pems: Sequence[str]) -> bytes:
    """A PKCS 12 truststore with the public authorities that this host trusts, and `pems`.

    Java reads one truststore and nothing beside it, so that the public ones must be in it too. It has no password:
    what is in it is public.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import NoEncryption
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12Certificate, serialize_java_truststore

    certificates = [x509.load_pem_x509_certificate(pem.encode("ascii")) for pem in pems]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for public in ssl.create_default_context().get_ca_certs(binary_form=True):
            try:
                certificates.append(x509.load_der_x509_certificate(public))
            except (ValueError, Warning):
                continue  # some public authorities' certificates are older than today's rules for them
    unique = dict.fromkeys(certificates)
    entries = [PKCS12Certificate(one, f"authority-{number}".encode()) for number, one in enumerate(unique)]
    return serialize_java_truststore(entries, NoEncryption())
