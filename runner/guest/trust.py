"""What the tools' clients trust beside the image's own certificates: the session's authority, a company's.

The root is read-only, so the image's bundle is not touched: a copy with the further certificates at its end lies in
the guest's folder, and variables lead the common clients to it.
"""

from __future__ import annotations

import shutil
from pathlib import Path

FOLDER = Path("/run/sbx/trust")
SYSTEM_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")

BUNDLE_VARIABLES = (
    "SSL_CERT_FILE",  # OpenSSL, Python, Go, Ruby, uv
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "PIP_CERT",
    "NPM_CONFIG_CAFILE",
    "CARGO_HTTP_CAINFO",
    "AWS_CA_BUNDLE",
)
"""Each names a whole bundle of trusted authorities."""


def lay(pem: str, truststore: bytes, path: str, *, folder: Path = FOLDER) -> dict[str, str]:
    """Writes what is to be trusted, and returns the variables that say so.

    Args:
        pem: the further certificates.
        truststore: the same for Java, in PKCS 12.
        path: the tools' PATH; Java is told only where it is, since it says so at each start.
    """
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    bundle, extra, java = folder / "ca-certificates.crt", folder / "extra.crt", folder / "java.p12"
    own = SYSTEM_BUNDLE.read_text("utf-8", "replace") if SYSTEM_BUNDLE.exists() else ""
    bundle.write_text(f"{own.rstrip()}\n{pem}" if own else pem, "utf-8")
    extra.write_text(pem, "utf-8")
    # Node adds to its own, the others read one file and nothing beside it.
    variables = dict.fromkeys(BUNDLE_VARIABLES, str(bundle)) | {"NODE_EXTRA_CA_CERTS": str(extra)}
    if truststore and shutil.which("java", path=path):
        java.write_bytes(truststore)
        variables["JAVA_TOOL_OPTIONS"] = (
            f"-Djavax.net.ssl.trustStore={java} -Djavax.net.ssl.trustStoreType=PKCS12"
            " -Djavax.net.ssl.trustStorePassword="
        )
    return variables
