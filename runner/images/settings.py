"""The host's package index, proxy and certificates, for the length of a build.

They must work inside and must not stay: not in a layer, not in the history, not in the environment, not in the log.
Proxies go as the builder's predefined arguments, which it keeps out of the history and the cache. All else is packed
into one more of these, `FTP_PROXY`, and unpacked by `images/build/run` to a tmpfs (see there).
"""

from __future__ import annotations

import base64
import configparser
import gzip
import io
import os
import re
import shlex
import subprocess
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

from runner.errors import ConfigError, ImageError

CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
HOST_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")
DEBIAN_CERTIFICATES = Path("/usr/share/ca-certificates/mozilla")
"""Where Debian's and Ubuntu's package ca-certificates lays what it holds, one file each."""
PAYLOAD_LIMIT = 120_000
"""Characters. Linux takes no longer single variable than 128 KiB."""
CLIENT_TIMEOUT = 10
"""Seconds for apt-config to print its settings."""
PROXY_NAMES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY")
MASK = "***"
APT_PLACES = ("/etc/apt/sources.list", "/etc/apt/sources.list.d", "/var/lib/apt/lists")
DISTRIBUTIONS = ("Debian", "Ubuntu")
"""Origins, as Release files name them."""

CERTIFICATE_VARIABLES = (
    "SSL_CERT_FILE",  # OpenSSL, Go, uv, Ruby
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "REQUESTS_CA_BUNDLE",
    "PIP_CERT",
    "NODE_EXTRA_CA_CERTS",
    "NPM_CONFIG_CAFILE",
    "CARGO_HTTP_CAINFO",
)


@dataclass(frozen=True)
class Settings:
    """What a build is told of the host."""

    certificates: tuple[str, ...] = ()
    """PEM, beyond those that Debian's ca-certificates holds."""
    proxies: Mapping[str, str] = field(default_factory=dict)
    pip: Mapping[str, str] = field(default_factory=dict)
    """Keys of pip's `[global]`."""
    npm: tuple[str, ...] = ()
    """Lines for an npmrc."""
    apt: tuple[str, ...] = ()
    """Lines for an apt.conf."""
    sources: tuple[str, ...] = ()
    """Where this host's apt takes its distribution's packages from: lines of `SUITE URI COMPONENT`."""

    def arguments(self) -> dict[str, str]:
        """Build arguments; all of them are of the builder's predefined names.

        Raises:
            ImageError: the settings are longer than a variable may be.
        """
        given = dict(self.proxies)
        packed = self._packed()
        if packed:
            given["FTP_PROXY"] = packed
        return given

    def secrets(self) -> tuple[str, ...]:
        """Strings that must not show in a build's output: passwords and tokens in URLs and in npm's settings."""
        found = set()
        for text in (*self.proxies.values(), *self.pip.values(), *self.npm, *self.apt, *self.sources):
            for url in re.findall(r"https?://[^\s\"';]+", text):
                if password := urlsplit(url).password:
                    found.add(password)
            if match := re.match(r".*:_(?:authToken|auth|password)\s*=\s*(\S+)", text):
                found.add(match[1])
        return tuple(sorted(found, key=len, reverse=True))

    def package_proxies(self) -> dict[str, str]:
        """The proxies that this host's package clients are set to, as variables, for where the environment has none."""
        found: dict[str, str] = {}
        for line in self.apt:
            if match := re.match(r'Acquire::(https?)::Proxy "(http[^"]+)";', line):
                found.setdefault(f"{match[1]}_proxy", match[2])
        npm = dict(line.partition("=")[::2] for line in self.npm)
        for url in (self.pip.get("proxy"), npm.get("https-proxy"), npm.get("proxy")):
            if url:
                found.setdefault("https_proxy", url)
                found.setdefault("http_proxy", url)
        return found

    def closed(self, proxies: Mapping[str, str]) -> Settings:
        """The settings of a build whose only way out is a proxy of ours; the host's own are that one's to use."""
        return replace(
            self,
            proxies=dict(proxies),
            pip={key: value for key, value in self.pip.items() if key != "proxy"},
            npm=tuple(line for line in self.npm if line.partition("=")[0] not in ("proxy", "https-proxy", "noproxy")),
            apt=(),
        )

    def _packed(self) -> str:
        files: dict[str, str] = {}
        lines = []
        if self.certificates:
            files["extra.crt"] = "\n".join(self.certificates) + "\n"
            lines += [f'export {name}="$SBX_BUILD/ca.crt"' for name in CERTIFICATE_VARIABLES]
        apt = list(self.apt)
        if self.certificates:
            apt.append('Acquire::https::CaInfo "@/ca.crt";')
        if apt:
            # apt reads no variable, so that the folder's name is filled in where it is known.
            files["apt.conf"] = "\n".join(apt) + "\n"
            lines.append('sed -i "s|@/|$SBX_BUILD/|" "$SBX_BUILD/apt.conf"; export APT_CONFIG="$SBX_BUILD/apt.conf"')
        if self.pip:
            files["pip.conf"] = "[global]\n" + "".join(
                f"{key} = {value.strip().replace(chr(10), chr(10) + '  ')}\n" for key, value in self.pip.items()
            )
            lines.append('export PIP_CONFIG_FILE="$SBX_BUILD/pip.conf"')
            if index := self.pip.get("index-url"):
                lines.append(f"export UV_DEFAULT_INDEX={shlex.quote(index)}")
        if self.sources:
            files["sources"] = "\n".join(self.sources) + "\n"
        if self.npm:
            files["npmrc"] = "\n".join(self.npm) + "\n"
            lines.append('export NPM_CONFIG_GLOBALCONFIG="$SBX_BUILD/npmrc"')
        if not files:
            return ""
        files["environment"] = "".join(f"{line}\n" for line in lines)
        text = "sbx:" + base64.b64encode(_tar_gz(files)).decode()
        if len(text) > PAYLOAD_LIMIT:
            raise ImageError(
                f"the certificates and settings for the build are too long: {len(text)} characters packed, "
                f"at most {PAYLOAD_LIMIT}",
                hint="give only the proxy's own: --ca-certificate FILE",
            )
        return text


def read(certificates: Sequence[Path] = (), environ: Mapping[str, str] = os.environ) -> Settings:
    """The settings of this host's own clients.

    Args:
        certificates: files of PEM certificates; none means those of the host's bundle that Debian's does not hold.
        environ: proxies, `PIP_*`, `NPM_CONFIG_*`, `SSL_CERT_FILE`, `HOME` are read from it.

    Raises:
        ConfigError: a certificate file cannot be read or holds no certificate.
    """
    return Settings(
        certificates=tuple(certificates_of(certificates, environ)),
        proxies=_proxies(environ),
        pip=_pip(environ),
        npm=tuple(_npm(environ)),
        apt=tuple(_apt()),
        sources=tuple(_sources()),
    )


def certificates_of(files: Sequence[Path] = (), environ: Mapping[str, str] = os.environ) -> list[str]:
    """PEM texts to trust beyond the public ones, in order, without repeats. Also what a sandbox is told at run time."""
    if files:
        return list(dict.fromkeys(pem for file in files for pem in _read_certificates(file)))
    for bundle in (environ.get("SSL_CERT_FILE", ""), *HOST_BUNDLES):
        if bundle and Path(bundle).is_file():
            public = _public_certificates()
            return [pem for pem in dict.fromkeys(_read_certificates(Path(bundle))) if pem not in public]
    return []


def _read_certificates(file: Path) -> list[str]:
    try:
        text = file.read_text("utf-8", "replace")
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", place=str(file), hint="--ca-certificate FILE") from error
    found = CERTIFICATE.findall(text.replace("\r\n", "\n"))
    if not found:
        raise ConfigError("holds no PEM certificate", place=str(file), hint="convert DER: openssl x509 -inform der")
    return found


def _public_certificates() -> set[str]:
    if DEBIAN_CERTIFICATES.is_dir():
        texts: Iterable[str] = (path.read_text("utf-8", "replace") for path in DEBIAN_CERTIFICATES.glob("*.crt"))
    else:
        import certifi

        texts = [Path(certifi.where()).read_text("utf-8", "replace")]
    return {pem for text in texts for pem in CERTIFICATE.findall(text)}


def _proxies(environ: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for name in PROXY_NAMES:
        if value := environ.get(name) or environ.get(name.lower()):
            found[name] = found[name.lower()] = value
    return found


def _pip(environ: Mapping[str, str]) -> dict[str, str]:
    """Indexes and trust of pip's configuration. Folders of this host are left aside: they are not in the build."""
    home = Path(environ.get("HOME") or Path.home())
    places = [Path("/etc/pip.conf"), home / ".pip/pip.conf"]
    places.append(Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "pip/pip.conf")
    if own := environ.get("PIP_CONFIG_FILE"):
        places = [Path(own)] if own != os.devnull else []
    merged: dict[str, str] = {}
    for place in places:
        parser = configparser.RawConfigParser()
        try:
            parser.read(place, "utf-8")
        except (configparser.Error, UnicodeDecodeError) as error:
            raise ConfigError(f"pip's configuration cannot be read: {error}", place=str(place)) from error
        for section in ("global", "install"):
            if parser.has_section(section):
                merged |= {key.replace("_", "-"): value for key, value in parser.items(section)}
    names = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout", "retries")
    found: dict[str, str] = {}
    for name in names:
        value = environ.get(f"PIP_{name.upper().replace('-', '_')}") or merged.get(name) or ""
        if name.endswith("index-url"):
            value = "\n".join(url for url in value.split() if url.startswith(("http://", "https://")))
        if value:
            found[name] = value
    return found


def _npm(environ: Mapping[str, str]) -> list[str]:
    """Lines of npm's files that say where packages come from, and who asks; variables of its own filled in."""
    home = Path(environ.get("HOME") or Path.home())
    lines: dict[str, str] = {}
    wanted = re.compile(r"^(registry|proxy|https-proxy|noproxy|strict-ssl|@[^:]+:registry|//[^=]+:_[A-Za-z]+)$")
    user = Path(environ.get("NPM_CONFIG_USERCONFIG") or home / ".npmrc")
    for place in (Path("/etc/npmrc"), Path("/usr/etc/npmrc"), user):
        try:
            text = place.read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        for line in text.splitlines():
            key, equals, value = (part.strip() for part in line.partition("="))
            if equals and wanted.match(key):
                filled = re.sub(r"\$\{(\w+)\}", lambda match: environ.get(match[1], match[0]), value)
                lines[key] = filled.strip('"')
    for key in ("registry", "proxy", "https-proxy", "noproxy"):
        if given := environ.get(f"NPM_CONFIG_{key.upper().replace('-', '_')}") or environ.get(
            f"npm_config_{key.replace('-', '_')}"
        ):
            lines[key] = given
    return [f"{key}={value}" for key, value in lines.items()]


def _apt() -> list[str]:
    """Proxies of this host's apt."""
    try:
        answer = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, timeout=CLIENT_TIMEOUT)
    except (OSError, subprocess.TimeoutExpired):
        return []
    wanted = re.compile(r'^Acquire::(http|https)::(Proxy|Proxy::\S+) ".+";$')
    return [line for line in answer.stdout.splitlines() if wanted.match(line)]


def _sources() -> list[str]:
    """Where this host's apt takes the distribution's own packages from; the Release file says whose they are.

    Asking apt takes seconds on a busy machine, so its answer is remembered until one of its folders changes.
    """
    stamp = " ".join(f"{path}:{_changed(path)}" for path in APT_PLACES)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sbx" / "apt-sources"
    try:
        known, *lines = cache.read_text("utf-8").splitlines()
        if known == stamp:
            return lines
    except (OSError, ValueError):
        pass
    lines = _asked_sources()
    try:
        cache.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        aside = cache.with_name(f".{cache.name}.{os.getpid()}")
        aside.touch(0o600)  # a mirror's address may hold a password
        aside.write_text("\n".join([stamp, *lines]) + "\n", "utf-8")
        aside.replace(cache)
    except OSError:
        pass  # then it is asked again
    return lines


def _changed(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns  # noqa: PTH116  # a number is all that is wanted
    except OSError:
        return 0


def _asked_sources() -> list[str]:
    form = "$(ORIGIN)|$(RELEASE)|$(REPO_URI)|$(COMPONENT)"
    command = ["apt-get", "indextargets", "--format", form, "Created-By: Packages"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=CLIENT_TIMEOUT)
    except (OSError, subprocess.TimeoutExpired):
        return []
    lines = []
    for line in answer.stdout.splitlines():
        origin, _, rest = line.partition("|")
        if origin in DISTRIBUTIONS and rest.count("|") == 2 and not re.search(r"\s", rest):
            suite, uri, component = rest.split("|")
            if uri.startswith(("http://", "https://")):
                lines.append(f"{suite} {uri} {component}")
    return list(dict.fromkeys(lines))


def _tar_gz(files: Mapping[str, str]) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for name, text in sorted(files.items()):
            member = tarfile.TarInfo(name)
            content = text.encode()
            member.size, member.mode = len(content), 0o600
            tar.addfile(member, io.BytesIO(content))
    return gzip.compress(raw.getvalue(), mtime=0)
