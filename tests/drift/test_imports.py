"""What importing the library costs."""

from __future__ import annotations

import pkgutil

from commands import python

import drift


def imported_by(code):
    return set(python(f"{code}\nimport sys; print(*sys.modules)").split())


def test_importing_the_package_imports_nothing_else():
    assert not {"numpy", "scipy", "pydantic"} & imported_by("import drift")


def test_no_module_imports_scipy_until_it_is_used_nor_metrics_or_servers():
    names = [module.name for module in pkgutil.walk_packages(drift.__path__, "drift.")]
    names = [name for name in names if not name.endswith(".cli")]
    loaded = imported_by("import " + ", ".join(names))
    assert "drift.alarms.monitor" in loaded
    assert not {name for name in loaded if name.split(".")[0] == "scipy"}
    assert not {"prometheus_client", "exporter", "grpc", "uvicorn"} & loaded
