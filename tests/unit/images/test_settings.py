"""The host's index, proxy and certificates: what goes along, and how it arrives."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from runner.errors import ConfigError, ImageError
from runner.images import settings
from runner.kits.data import data_folder

PREDEFINED = {"HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY", "ALL_PROXY"}
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIBone\n-----END CERTIFICATE-----"
OTHER = "-----BEGIN CERTIFICATE-----\nMIIBtwo\n-----END CERTIFICATE-----"


def read(home: Path, *certificates: Path, **environ: str) -> settings.Settings:
    return settings.read(certificates, {"HOME": str(home), "PIP_CONFIG_FILE": str(home / "pip.conf"), **environ})


def run(given: settings.Settings, command: str) -> str:
    """The build's own script, run here with the arguments of a build."""
    script = data_folder("images") / "build" / "run"
    environ = {"PATH": os.environ["PATH"], **given.arguments()}
    clean = '; rm -rf "$SBX_BUILD"' if "FTP_PROXY" in environ else ""
    return subprocess.run(
        ["sh", str(script), command + clean], env=environ, capture_output=True, text=True, check=True
    ).stdout


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    file = tmp_path / "ca.crt"
    file.write_text(f"a comment\n{CERTIFICATE}\n{OTHER}\n{CERTIFICATE}\n")
    return file


def test_only_predefined_arguments_are_used(tmp_path: Path, certificate: Path) -> None:
    given = read(tmp_path, certificate, HTTPS_PROXY="http://proxy:3128", PIP_INDEX_URL="https://index.example/simple")
    assert {name.upper() for name in given.arguments()} <= PREDEFINED


def test_certificates_are_trusted_by_every_client(tmp_path: Path, certificate: Path) -> None:
    given = read(tmp_path, certificate)
    shown = run(given, 'cat "$PIP_CERT"; echo; echo "$SSL_CERT_FILE" "$NODE_EXTRA_CA_CERTS" "$GIT_SSL_CAINFO"')
    assert CERTIFICATE in shown
    assert OTHER in shown
    assert len(set(shown.splitlines()[-1].split())) == 1


def test_the_command_does_not_see_the_packed_settings(tmp_path: Path, certificate: Path) -> None:
    assert "FTP_PROXY" not in run(read(tmp_path, certificate), "env")


def test_settings_lie_on_a_tmpfs_that_only_the_user_reads(tmp_path: Path, certificate: Path) -> None:
    shown = run(read(tmp_path, certificate), 'stat -f -c %T "$SBX_BUILD"; stat -c %a "$SBX_BUILD"')
    assert shown.split() == ["tmpfs", "700"]


def test_a_certificate_given_twice_goes_once(certificate: Path) -> None:
    assert settings.certificates_of([certificate, certificate]) == [CERTIFICATE, OTHER]


def test_a_file_without_a_certificate_is_named(tmp_path: Path) -> None:
    file = tmp_path / "key.pem"
    file.write_text("no")
    with pytest.raises(ConfigError, match=f"{file}: holds no PEM certificate"):
        settings.certificates_of([file])


def test_a_missing_certificate_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.crt"):
        settings.certificates_of([tmp_path / "none.crt"])


def test_the_hosts_public_certificates_do_not_go_along(tmp_path: Path) -> None:
    public = sorted(settings.DEBIAN_CERTIFICATES.glob("*.crt"))[0].read_text()
    bundle = tmp_path / "bundle.crt"
    bundle.write_text(public + CERTIFICATE + "\n")
    assert settings.certificates_of((), {"SSL_CERT_FILE": str(bundle)}) == [CERTIFICATE]


def test_a_pip_index_goes_along_and_folders_of_this_host_do_not(tmp_path: Path) -> None:
    tmp_path.joinpath("pip.conf").write_text(
        "[global]\nindex-url = https://index.example/simple\nfind-links = /opt/wheels\n"
        "extra-index-url = file:///opt/index https://second.example/simple\ncert = /etc/ca.crt\n"
    )
    shown = run(read(tmp_path), 'cat "$PIP_CONFIG_FILE"')
    assert "index-url = https://index.example/simple" in shown
    assert "https://second.example/simple" in shown
    assert "/opt/" not in shown
    assert "/etc/ca.crt" not in shown


def test_pips_variables_win_over_its_file(tmp_path: Path) -> None:
    tmp_path.joinpath("pip.conf").write_text("[global]\nindex-url = https://file.example/\n")
    assert read(tmp_path, PIP_INDEX_URL="https://env.example/").pip["index-url"] == "https://env.example/"


def test_npms_registries_and_tokens_go_along_and_nothing_else(tmp_path: Path) -> None:
    tmp_path.joinpath(".npmrc").write_text(
        "registry=https://npm.example/\n@team:registry=https://team.example/\n"
        "//team.example/:_authToken=${TOKEN}\ncache=/root/cache\nsave-exact=true\n"
    )
    shown = run(read(tmp_path, TOKEN="s3cret"), 'cat "$NPM_CONFIG_GLOBALCONFIG"')
    assert "@team:registry=https://team.example/" in shown
    assert "//team.example/:_authToken=s3cret" in shown
    assert "cache" not in shown
    assert "save-exact" not in shown


def test_secrets_are_known_so_that_they_can_be_masked(tmp_path: Path) -> None:
    tmp_path.joinpath(".npmrc").write_text("//team.example/:_authToken=tok3n\n")
    given = read(tmp_path, HTTPS_PROXY="http://me:pr0xy@proxy:3128", PIP_INDEX_URL="https://u:p1p@index.example/")
    assert set(given.secrets()) == {"tok3n", "pr0xy", "p1p"}


def test_proxies_go_in_both_spellings(tmp_path: Path) -> None:
    given = read(tmp_path, https_proxy="http://proxy:3128").arguments()
    assert given["HTTPS_PROXY"] == given["https_proxy"] == "http://proxy:3128"


def test_too_many_certificates_are_refused_with_a_way_out(tmp_path: Path) -> None:
    file = tmp_path / "many.crt"
    noise = [os.urandom(3000).hex() for _ in range(40)]
    file.write_text("\n".join(f"-----BEGIN CERTIFICATE-----\n{n}\n-----END CERTIFICATE-----" for n in noise))
    with pytest.raises(ImageError) as caught:
        read(tmp_path, file).arguments()
    assert "--ca-certificate" in (caught.value.hint or "")
