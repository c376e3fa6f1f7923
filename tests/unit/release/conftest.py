# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The artifacts of a release, built once from what the work tree has now; without the image, which needs a mirror."""

from __future__ import annotations

import built_release
import pytest


@pytest.fixture(scope="session")
def repository(tmp_path_factory):
    return built_release.repository(tmp_path_factory.mktemp("place"))


@pytest.fixture(scope="session")
def built(repository):
    return built_release.build(repository, repository.parent / "built", "--no-image")


@pytest.fixture(scope="session")
def commit(repository):
    return built_release.git(repository, "rev-parse", "HEAD").strip()
