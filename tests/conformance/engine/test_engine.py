"""The engine that runs here."""

from __future__ import annotations

import pytest

from runner.engine import connect
from runner.engine.doctor import examine
from runner.errors import NotFoundError

pytestmark = pytest.mark.engine


def test_both_ways_of_asking_agree() -> None:
    engine = connect()
    with engine.call("asking for its version"):
        told = engine.api.version()
    assert engine.get("/version", doing="asking for its version")["Version"] == told["Version"]
    engine.close()


def test_an_unknown_image_is_not_found_either_way() -> None:
    engine = connect()
    with pytest.raises(NotFoundError), engine.call("looking"):
        engine.api.inspect_image("sbx/none:none")
    with pytest.raises(NotFoundError, match="sbx/none:none"):
        engine.get("/images/sbx/none:none/json", doing="looking")
    engine.close()


def test_the_doctor_finds_this_engine_well() -> None:
    checks = {check.name: check for check in examine()}
    assert {"engine", "api", "permission", "version", "disk", "base image"} <= set(checks)
    assert checks["engine"].status == checks["api"].status == checks["permission"].status == "ok"
